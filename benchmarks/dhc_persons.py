"""The persons of the DHC product on the sample state, or on one of its counties: what it takes.

    .venv/bin/python -m benchmarks.dhc_persons FOLDER [--county 001] [--infinite]

makes a redistricting run in FOLDER and a DHC run held to it, on tables whose ages are edited where
production's structural zeros ask for it. Prints, stage by stage, seconds and peak memory of one
process that runs all steps one after the other, how many answers were drawn of how many that were
charged, errors of sex by age, and what the seconds come to for the United States. With --infinite
there is no noise, and the blocks' counts are compared with the input's. A FOLDER with finished runs
is only told about.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.answers.estimates import read_estimates
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine, shards_by_geolevel

from benchmarks.public_persons import STATE
from tests.tasks.topdown.dhc_input import write_edited

PERSONS_OF_THE_NATION, BLOCKS_OF_THE_NATION = 331_449_281, 5_892_698
QUERY = "age_38_groups * sex"
LEVELS = {"County": "County", "Tract": "Tract_Subset", "Block_Group": "Block_Group"}
"""Levels of which errors are told, and the geolevel whose noise stands beside."""

SETTINGS = """
preset = "{preset}"
[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false
{redistricting}
[privacy]
dataset = "sample"
{infinite}
"""


def prepared(folder: Path, county: str | None) -> int:
    """Write the input tables, of one county if it is named; returns the edited persons."""
    return write_edited(sample(folder, county), folder / "input")


def sample(folder: Path, county: str | None) -> Path:
    """The folder of the sample state, or of one of its counties, which is written."""
    if county is None:
        return STATE
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    places = pd.read_csv(STATE / "grfc.txt", sep="|", dtype=str)
    places = places[places["TABBLKCOU"] == county]
    units = pd.read_parquet(STATE / "units.parquet")
    units = units[units["OIDTB"].astype(str).isin(places["OIDTABBLK"])]
    persons = pd.read_parquet(STATE / "persons.parquet")
    persons[persons["MAFID"].isin(units["MAFID"])].to_parquet(raw / "persons.parquet")
    units.to_parquet(raw / "units.parquet")
    places.to_csv(raw / "grfc.txt", sep="|", index=False)
    return raw


def run_of(folder: Path, preset: str, held: str, infinite: bool) -> RunDirectory:
    """Run all stages in this process, with a line for each that takes a second or more."""
    file = folder / f"{preset}.toml"
    text = SETTINGS.format(
        preset=preset, redistricting=held, infinite="infinite = true" if infinite else ""
    )
    file.write_text(text, encoding="utf-8")
    settings = TOPDOWN.load(file)
    run = prepare(settings, folder / preset)
    if run.release.exists():
        return run
    begun = time.perf_counter()
    clocks = [begun, time.process_time()]

    def ended(stage: str) -> None:
        now = [time.perf_counter(), time.process_time()]
        wall, processor = now[0] - clocks[0], now[1] - clocks[1]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if wall >= 1.0:
            print(f"| {stage} | {wall:.1f} | {processor:.1f} | {memory:.2f} |", flush=True)
        clocks[:] = now

    call_stages(run, settings, ended=ended)
    print(f"| {preset}: all | {time.perf_counter() - begun:.1f} | | |", flush=True)
    return run


def answers_of(run: RunDirectory, universe: str = "persons") -> int:
    """Answers that were drawn."""
    files = (run.root / "measurements" / universe).rglob("on_demand/*.parquet")
    columns = [pq.read_table(path, columns=["value"])["value"] for path in files]
    return sum(pc.sum(pc.list_value_length(column)).as_py() or 0 for column in columns)


def tell_errors(run: RunDirectory, settings: TopdownSettings) -> None:
    """Mean absolute errors of sex by age beside the noise of one measurement of it."""
    errors = pd.read_parquet(run.confidential / "accuracy/errors.parquet")
    errors = errors[(errors["quantity"] == QUERY) & (errors["answer"] == "all")]
    errors = errors[errors["size_class"] == "all"].set_index("level")["mean_absolute_error"]
    budget = settings.budget_of("persons")
    for level, geolevel in LEVELS.items():
        spent = budget.total * budget.geolevel_shares[geolevel]
        deviation = math.sqrt(1 / (spent * budget.query_shares[geolevel][QUERY]))
        print(f"| {level} | {errors[level]:.2f} | {deviation:.2f} |")


def tell_identity(run: RunDirectory, settings: TopdownSettings) -> None:
    """How many cells of how many geounits differ from the input, at every geolevel."""
    n_cells, spine = settings.schema_of("persons").n_cells, read_spine(spine_folder(run, "persons"))
    shards = shards_by_geolevel(run, "persons")[spine.names[-1]]
    files = [run.estimates("persons", spine.names[-1], shard.name) for shard in shards]
    last = read_estimates(files, spine.geolevels[-1].geocode, n_cells)
    truth = read_histogram(run.histogram("persons"), spine.block_geocode, n_cells=n_cells)
    print(f"cells of blocks that differ from the input: {abs(last - truth).count_nonzero():,}")


def options_of(description: str | None) -> argparse.Namespace:
    """The folder, the county and whether budgets are infinite, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("--county")
    parser.add_argument("--infinite", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Run, and tell."""
    options = options_of(__doc__)
    folder = options.folder
    if not (folder / "input").exists():
        print(f"persons edited: {prepared(folder, options.county):,}")
    run_of(folder, "pl94_2020_us", "", options.infinite)
    held = 'redistricting = "pl94_2020_us"'
    run = run_of(folder, "dhc_persons_2020_us", held, options.infinite)
    settings = TOPDOWN.load(folder / "dhc_persons_2020_us.toml")
    drawn, n_blocks = answers_of(run), len(read_spine(spine_folder(run, "persons")).block_geocode)
    n_persons = pq.read_metadata(run.release / "mdf_persons.parquet").num_rows
    print(f"{n_persons:,} persons in {n_blocks:,} blocks; {drawn:,} answers drawn")
    scale = PERSONS_OF_THE_NATION / n_persons
    print(f"United States: {drawn * scale:.2g} answers, {scale:.0f} times this")
    if options.infinite:
        tell_identity(run, settings)
    else:
        tell_errors(run, settings)


if __name__ == "__main__":
    main()
