"""How a run's time and memory grow with the country, and how long the United States would take.

    .venv/bin/python -m benchmarks.scaling

States of 1, 4, 16 and 64 generated counties of 100,000 persons each, about the mean of the nation,
are run end to end, persons and housing units with the preset pl94_2020_us, each in a process of its
own with a Prefect home of its own, after one run that is not counted and in which the kernels are
compiled, those that only larger states need among them. An empty run, the smallest county that can
be generated, tells what a run costs however small it is; net seconds are those beyond it. The
exponent is the slope of log net seconds over log persons, by least squares, from 4 to 64 counties:
1 is linear growth. It is given for wall-clock seconds and for the processor's, which a busy machine
disturbs less; processor seconds include Prefect's embedded server.

Then follow the seconds of work by geolevel from the manifest of one more run, of the state before
the largest and on one worker, net of the empty run's, and what they come to for the United States.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county

from benchmarks.nation_run import COMMAND, REPOSITORY, without_geolevel

MOST_EXPONENT = 1.05
FITTED_FROM = 4
SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "scaling"
ledger = "ledger.db"
[run]
workers = {workers}
"""

US_PERSONS = 331_449_281
"""Apportionment Act count of residents, 2020 Census."""
US_GEOUNITS = {
    "US": 1,
    "State": 87,
    "County": 3_591,
    "Tract": 84_890,
    "Block_Group": 487_607,
    "Block": 5_900_000,
}
"""Optimised spine of a generated nation, by benchmarks/national_spine.py; see docs/spines.md.

Blocks are those that can hold somebody, of 8,132,968 tabulation blocks in all.
"""
CORES = (2, 32)


@dataclass(frozen=True)
class Run:
    """One finished run; seconds of work by stage are those of its manifest."""

    n_counties: int
    n_persons: int
    geounits: Mapping[str, Mapping[str, int]]
    wall: float
    cpu: float
    gib: float
    stages: Mapping[str, float]


def run(folder: Path, *, persons: int, n_counties: int, workers: int) -> Run:
    """Generate a state, and run the flow on it in a process of its own.

    It is generated in another process: what this one holds would count in the memory of those that
    it starts.
    """
    import pyarrow.parquet as pq

    folder.mkdir()
    generate = [sys.executable, "-m", "benchmarks.scaling", "--generate", str(folder)]
    subprocess.run([*generate, str(persons), str(n_counties)], check=True, cwd=REPOSITORY)
    (folder / "settings.toml").write_text(SETTINGS.format(workers=workers), encoding="utf-8")
    command = [sys.executable, "-c", COMMAND, "run", "topdown", str(folder / "settings.toml")]
    environment = os.environ | {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    }
    started = time.perf_counter()
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [*command, "--run-dir", str(folder / "run")],
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=output,
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit((folder / "output.txt").read_text())
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    geounits = {}
    for universe in ("persons", "units"):
        table = pq.read_table(folder / "run" / "spine" / universe / "geounits.parquet")
        names, counts = np.unique(table["geolevel"].to_numpy(), return_counts=True)
        geounits[universe] = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return Run(
        n_counties,
        persons * n_counties,
        geounits,
        wall,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 2**20,
        {name: stage["seconds"] or 0.0 for name, stage in manifest["stages"].items()},
    )


def exponent(persons: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log persons."""
    return float(np.polyfit(np.log(persons), np.log(seconds), 1)[0])


def print_growth(runs: Sequence[Run], empty: Run) -> None:
    """A line for each size, and the fitted exponents."""
    print("| counties | persons | blocks | wall s | net | CPU s | net | peak GiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for one in (empty, *runs):
        size = f"{one.n_counties}" if one is not empty else "empty run"
        print(
            f"| {size} | {one.n_persons:,} | {one.geounits['persons']['Block']:,} | "
            f"{one.wall:.1f} | {one.wall - empty.wall:.1f} | {one.cpu:.1f} | "
            f"{one.cpu - empty.cpu:.1f} | {one.gib:.2f} |"
        )
    fitted = [one for one in runs if one.n_counties >= FITTED_FROM]
    if len(fitted) < 2:
        return
    persons = [one.n_persons for one in fitted]
    for what in ("wall", "cpu"):
        slope = exponent(persons, [getattr(one, what) - getattr(empty, what) for one in fitted])
        print(
            f"exponent of net {what} seconds from {fitted[0].n_counties} to "
            f"{fitted[-1].n_counties} counties: {slope:.3f} (at most {MOST_EXPONENT})"
        )


def print_stages(runs: Sequence[Run]) -> None:
    """Seconds of work by group of stages for each size."""
    print("\n| stage | " + " | ".join(f"{one.n_counties} counties" for one in runs) + " |")
    print("|---|" + "---:|" * len(runs))
    groups = dict.fromkeys(without_geolevel(name) for one in runs for name in one.stages)
    for group in groups:
        seconds = [
            sum(value for name, value in one.stages.items() if without_geolevel(name) == group)
            for one in runs
        ]
        print(f"| {group} | " + " | ".join(f"{value:.2f}" for value in seconds) + " |")


PER_BLOCK = ("spine", "constraints", "summary")
CONSTANT = ("ledger", "release", "report")


def print_country(one: Run, empty: Run) -> None:
    """Net seconds by geounit and geolevel of one run, and what they make of the United States.

    Estimating and measuring go with the geounits, other stages with the blocks or the persons;
    what the empty run took comes on top once.
    """
    net = {name: max(0.0, value - empty.stages[name]) for name, value in one.stages.items()}
    print(
        "\n| universe | geolevel | parents | geounits | measure ms a geounit | "
        "estimate ms a geounit | estimate ms a parent |\n|---|---|---:|---:|---:|---:|---:|"
    )
    sharded = {"measure": 0.0, "estimate": 0.0}
    geolevels = list(US_GEOUNITS)
    for universe in ("persons", "units"):
        for above, geolevel in zip([None, *geolevels], geolevels, strict=False):
            n = one.geounits[universe][geolevel]
            n_parents = one.geounits[universe][above] if above else 1
            seconds = {stage: net[f"{universe} {stage} {geolevel}"] for stage in sharded}
            for stage, value in seconds.items():
                sharded[stage] += value / n * US_GEOUNITS[geolevel]
            print(
                f"| {universe} | {geolevel} | {n_parents:,} | {n:,} | "
                f"{1000 * seconds['measure'] / n:.3f} | {1000 * seconds['estimate'] / n:.3f} | "
                f"{1000 * seconds['estimate'] / n_parents:.2f} |"
            )
    persons = US_PERSONS / one.n_persons
    blocks = US_GEOUNITS["Block"] / one.geounits["persons"]["Block"]
    other = {
        stage: value * (blocks if stage.rpartition(" ")[2] in PER_BLOCK else persons)
        for stage, value in net.items()
        if without_geolevel(stage) == stage and stage not in CONSTANT
    }
    # A universe's own stages stand beside the other's; the rest follow each other.
    alone = sum(empty.stages.values())
    alone += sum(value for stage, value in other.items() if len(stage.split()) == 1)
    beside = [
        sum(value for stage, value in other.items() if stage.startswith(f"{universe} "))
        for universe in ("persons", "units")
    ]
    parts = sharded | {"other stages of a universe": sum(beside), "stages of the run": alone}
    work = ", ".join(f"{what} {value / 3600:.2f}" for what, value in parts.items())
    print(f"\nUnited States, hours of work: {work}")
    for stage, value in sorted(other.items(), key=lambda item: -item[1])[:6]:
        print(f"  {stage}: {value / 60:.0f} minutes")
    for cores in CORES:
        hours = (sum(sharded.values()) / cores + alone + max(beside)) / 3600
        print(f"on {cores} cores: {hours:.2f} hours, where shards keep all cores busy")


def main() -> None:
    """Run every size and print what they took; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counties", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--persons", type=int, default=100_000, help="persons of a county")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--generate", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        folder, persons, n_counties = options.generate
        generate_county(folder, persons=int(persons), n_counties=int(n_counties))
        return
    with tempfile.TemporaryDirectory(prefix="spineflow-scaling-") as folder:

        def made(name: str, persons: int, n_counties: int, workers: int) -> Run:
            return run(Path(folder) / name, persons=persons, n_counties=n_counties, workers=workers)

        sizes = sorted(options.counties)
        made("compile", options.persons, sizes[-2:][0], options.workers)
        empty = made("empty", FEWEST_PERSONS, 1, options.workers)
        runs = [made(f"{n}", options.persons, n, options.workers) for n in options.counties]
        print_growth(runs, empty)
        print_stages(runs)
        one = made("one worker", options.persons, sizes[-2:][0], 1)
        print_country(one, made("one worker empty", FEWEST_PERSONS, 1, 1))


if __name__ == "__main__":
    main()
