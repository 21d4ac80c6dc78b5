"""Seconds and memory of a trips run, from the tree to the released table, and of all its parts.

Run `.venv/bin/python -m benchmarks.trips_speed CASE [--rounds N] [--set section.key=value ...]`
from the repository's root, in a process of its own for each case, since memory is the process's
peak. CASE is `complete` or `sparse`, the random trees of `../shared/data/trips`, or `country`, a
generated country with 28.8 million commuters. Compiled kernels are warmed up on a small country.
The exit status is 1 if the best round takes longer than the target, or memory is above 4 GiB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.public_persons import TRIPS

TARGET_SECONDS = {"complete": 3.0, "sparse": 1.0, "country": 60.0}
MOST_GIB = 4.0


def settings_file(case: str, folder: Path) -> Path:
    """Settings of a case, with epsilon 1 and delta 1e-8."""
    from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

    if case == "country":
        return generate_country(folder)
    if case == "warm up":
        return generate_country(folder, CountrySize(2, 4, 90, 800, 50_000))
    folder.mkdir(parents=True)
    path = folder / "settings.toml"
    path.write_text(
        f'[input]\ntrips = "{TRIPS}/random_{case}.parquet"\norigin = "LEVEL4_ORIG"\n'
        'destination = "LEVEL4_DEST"\ncount = "COUNT"\n'
        f'areas = "{TRIPS}/random_{case}_areas.csv"\nconfidential = false\n'
        f'[privacy]\ndataset = "{case}"\nledger = "ledger.db"\nepsilon = "1"\ndelta = "1e-8"\n'
    )
    return path


def run_once(file: Path, folder: Path, overrides: list[str]) -> dict[str, float]:
    """Seconds of the parts of one run, by the wall clock; `core` and its processor time."""
    from spineflow.flows.running import call_stages
    from spineflow.flows.trips import tree_to_table
    from spineflow.tasks.runs.directory import RunDirectory, start_run
    from spineflow.tasks.runs.settings_files import dump_settings, load_settings
    from spineflow.tasks.trips.ingest.ingest import ingest_input
    from spineflow.tasks.trips.product import TRIPS
    from spineflow.tasks.trips.settings import TripsSettings

    settings = load_settings(TripsSettings, file, presets=file.parent, overrides=overrides)
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    start_run(run, product="trips", settings_text=dump_settings(settings))
    parts: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        parts[name] = time.perf_counter() - wall
        parts[f"{name} (cpu)"] = time.process_time() - cpu

    timed("ingest", lambda: ingest_input(run, settings))
    timed("core", lambda: call_stages(run, settings, tree_to_table))
    timed("checks", lambda: TRIPS.check_run(run, settings))
    return parts


def main() -> int:
    """Print the parts of every round; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=TARGET_SECONDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    options = parser.parse_args()
    best = float("inf")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        warm_up = settings_file("warm up", folder / "warm up")
        run_once(warm_up, folder / "warm up run", options.overrides)
        file = settings_file(options.case, folder / "input")
        for number in range(options.rounds):
            parts = run_once(file, folder / f"run {number}", options.overrides)
            seconds = parts["core"]
            if options.case == "country":
                seconds += parts["ingest"] + parts["checks"]
            best = min(best, seconds)
            print("  ".join(f"{name} {value:.2f} s" for name, value in parts.items()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"best {best:.2f} s of {TARGET_SECONDS[options.case]:g} s allowed, peak {peak:.2f} GiB")
    return int(best > TARGET_SECONDS[options.case] or peak > MOST_GIB)


if __name__ == "__main__":
    sys.exit(main())
