"""Time and peak memory of estimating from published measurements, against the size of the nation.

    .venv/bin/python -m benchmarks.published_measurements [FRACTION ...]

For each fraction of the nation, by default 1/800, 1/400, 1/200 and 1/100, an export is made: states
of generated counties of 100,000 persons, about the mean of the nation, are run by the topdown flow
and their measurements written in the published layout. Then four steps are measured, each in a
process of its own: reading and checking the export (`check`), bringing it into a run
(`read`), estimating and releasing with all checks (`estimate`, full information), and
intervals of all geolevels for the total and for race by Hispanic origin (`intervals`). Seconds are
the processor's, which a busy machine disturbs less than those of the wall; they grow with a
slope that is fitted over the logarithms of the blocks, 1 being linear. Last come the hours and the
memory of the nation, from the largest fraction: seconds and the part of the memory that grows in
proportion to the blocks.

Kernels are compiled before anything is measured. 1/20 needs some 15 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

US_BLOCKS = 5_892_698
"""Blocks in the published measurements of 2020: those that can hold somebody."""
US_COUNTIES = 3_143
PERSONS_PER_COUNTY = 100_000
STEPS = ("check", "read", "estimate", "intervals")

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "nation"
seed = 1
"""
ESTIMATE = """\
[input]
measurements = "export"
geography = "grfc.txt"
state_totals = "export/state_totals.csv"
[run]
estimator = "full_information"
"""


@dataclass(frozen=True)
class Measured:
    """What a fraction took: by step the processor's seconds and the peak in GiB."""

    fraction: Fraction
    blocks: int
    seconds: Mapping[str, float]
    gib: Mapping[str, float]


def make_export(folder: Path, n_counties: int) -> None:
    """Generate the tables, measure them, and write the measurements in the published layout."""
    from spineflow.flows.running import call_stages, prepare
    from spineflow.tasks.topdown.ingest.generate import generate_county
    from spineflow.tasks.topdown.product import TOPDOWN
    from spineflow.tasks.topdown.published.export import export_measurements

    generate_county(folder, persons=PERSONS_PER_COUNTY, n_counties=n_counties)
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    (folder / "estimate.toml").write_text(ESTIMATE, encoding="utf-8")
    settings = TOPDOWN.load(folder / "settings.toml")
    run = prepare(settings, folder / "run")
    call_stages(run, settings, before=" estimate ")
    export_measurements(run, settings, folder / "export")


def step(folder: Path, name: str) -> None:
    """One step of a run of estimate, on what the steps before it have left."""
    from spineflow.flows.console import check_input
    from spineflow.flows.running import call_stages, prepare
    from spineflow.tasks.runs.directory import RunDirectory
    from spineflow.tasks.topdown.intervals.report import write_run_intervals
    from spineflow.tasks.topdown.product import ESTIMATE

    settings = ESTIMATE.load(folder / "estimate.toml")
    if name == "check":
        check_input(ESTIMATE, settings)
        return
    if name == "intervals":
        asked = ["total", "hispanic * cenrace"]
        list(write_run_intervals(RunDirectory(folder / "estimate"), settings, asked))
        return
    run = prepare(settings, folder / "estimate")
    call_stages(run, settings, before=" (estimate|combine) " if name == "read" else "")


def measured(folder: Path, fraction: Fraction) -> Measured:
    """Make the export of a fraction, and measure every step."""
    import pyarrow.parquet as pq

    folder.mkdir()
    n_counties = max(1, round(US_COUNTIES * fraction))
    subprocess.run(
        [*_self(folder), "--make", str(n_counties)], check=True, env=_environment(folder)
    )
    seconds, gib = {}, {}
    for name in STEPS:
        before = time.perf_counter()
        command = [*_self(folder), "--step", name]
        process = subprocess.Popen(command, env=_environment(folder))
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{name} at {fraction} of the nation failed")
        seconds[name] = usage.ru_utime + usage.ru_stime
        gib[name] = usage.ru_maxrss / 2**20
        wall = time.perf_counter() - before
        took = f"{seconds[name]:.1f} s, {wall:.1f} s by the wall, {gib[name]:.2f} GiB"
        print(f"{fraction}: {name} {took}", flush=True)
    table = pq.read_metadata(folder / "estimate" / "spine" / "persons" / "blocks.parquet")
    return Measured(fraction, table.num_rows, seconds, gib)


def _self(folder: Path) -> list[str]:
    return [sys.executable, __file__, "--folder", str(folder)]


def _environment(folder: Path) -> dict[str, str]:
    home = {"PREFECT_HOME": str(folder / "prefect")}
    return os.environ | home | {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}


def print_growth(found: Sequence[Measured]) -> None:
    """A line for each fraction and step, slopes, and what they come to for the nation."""
    print("\n| fraction | blocks | step | processor s | ms a block | peak GiB |")
    print("|---|---:|---|---:|---:|---:|")
    for one in found:
        for name in STEPS:
            per_block = 1000 * one.seconds[name] / one.blocks
            print(
                f"| {one.fraction} | {one.blocks:,} | {name} | {one.seconds[name]:.1f} | "
                f"{per_block:.2f} | {one.gib[name]:.2f} |"
            )
    if len(found) < 2:
        return
    blocks = np.array([one.blocks for one in found], dtype=float)
    print("\n| step | slope | nation, hours of one core | nation, GiB |\n|---|---:|---:|---:|")
    for name in STEPS:
        seconds = np.array([one.seconds[name] for one in found])
        gib = np.array([one.gib[name] for one in found])
        time_line = np.polyfit(blocks, seconds, 1)
        memory_line = np.polyfit(blocks, gib, 1)
        slope = np.polyfit(np.log(blocks), np.log(seconds), 1)[0]
        hours = np.polyval(time_line, US_BLOCKS) / 3600
        print(f"| {name} | {slope:.2f} | {hours:.1f} | {np.polyval(memory_line, US_BLOCKS):.1f} |")


def main() -> None:
    """Measure the fractions that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fractions", nargs="*", type=Fraction)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_export(options.folder, options.make)
        return
    if options.step:
        step(options.folder, options.step)
        return
    fractions = options.fractions or [Fraction(1, n) for n in (800, 400, 200, 100)]
    with tempfile.TemporaryDirectory(prefix="spineflow-published-") as folder:
        measured(Path(folder) / "warm", Fraction(1, US_COUNTIES))
        found = [measured(Path(folder) / str(n), f) for n, f in enumerate(fractions)]
    print_growth(found)
    print(json.dumps({str(one.fraction): one.seconds for one in found}))
    print(
        f"largest child: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20:.2f} GiB"
    )


if __name__ == "__main__":
    main()
