"""Errors of persons and households as released apart, and as one population, on a generated county.

    .venv/bin/python -m benchmarks.one_population FOLDER [--persons 3000] [--seeds 1 2 3]
    .venv/bin/python -m benchmarks.one_population --run FOLDER/run

The first runs redistricting, housing units and persons of the county without noise and with each
seed, makes one population of each, and prints how the blocks were made, how many records were
changed, and the sum of absolute errors of all answers to queries at every level, in percent of the
true records: means over the seeds of the separate releases and of one population, and the standard
deviation of the former, by which one run differs from the next. Runs that FOLDER has are not made
again.

The second reads a finished run of several products, as `benchmarks.whole_census` leaves it, and
prints the sums in records, of the state too. The truth is what its products counted in confidence.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from spineflow.flows.products import PRODUCT, _with_release_folders
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.population.estimation.blocks import (
    blocks_of,
    close_states,
    join_members,
    populate_county,
)
from spineflow.tasks.population.ingest.released import Released, Sources, read_released
from spineflow.tasks.population.release.population import Population, population_of_pieces, summary
from spineflow.tasks.population.workload import household_types, person_levels
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

SETTINGS = """
[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false
[privacy]
dataset = "county"
{privacy}
[products.topdown]
preset = "pl94_2020_us"
release = {{ margins = false }}
run = {{ coherent = true }}
[products.dhc-units]
preset = "dhc_units_2020_us"
input = {{ redistricting = "products.topdown" }}
[products.dhc-persons]
preset = "dhc_persons_2020_us"
input = {{ redistricting = "products.topdown" }}
"""
LEVELS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 16}
QUERIES = {
    "persons": (
        "relationship",
        "sex * relgq_4_groups",
        "hispanic * sex",
        "age_38_groups * sex",
        "sex * age_23_groups",
        "relgq * sex",
        "relgq * age_40_groups * hispanic * cenrace * sex",
    ),
    "households": (
        "size",
        "hhage",
        "sex * hhage",
        "hisp * race",
        "multig",
        "elderly",
        "coupled_hh_type",
        "household_type",
        "own_children",
        "under_18",
        "partner_type_detailed_own_child_status * sex * hhtenshort_2lev",
        "hhtenshort_2lev * size",
        "sex * hisp * hhtenshort_3lev * race * hhage * DetailedCoupleTypeMultGenDetOwnChildSize",
    ),
}
"""Queries of the budgets, and of published tables."""

Tables = Mapping[str, tuple[Schema, np.ndarray, np.ndarray]]
"""Schema, geocodes and cells of records, by universe."""

PRODUCT_OF = {"persons": "dhc-persons", "households": "dhc-units"}


def main() -> None:
    """Run, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--persons", type=int, default=3000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if (options.folder is None) == (options.run is None):
        parser.error("name a folder, or a run")
    if options.run is not None:
        tell_run(options.run.resolve())
        return
    if not (options.folder / "input").exists():
        generate_county(options.folder / "raw", persons=options.persons, seed=3, state="35")
        synthesize_households(options.folder / "raw", options.folder / "input", seed=4)
    truth = apart(sources_of(options.folder, "inf", "infinite = true"))
    errors = []
    for seed in options.seeds:
        sources = sources_of(options.folder, str(seed), f"seed = {seed}")
        began = time.process_time()
        population = one_population(sources)
        print(seed, summary(population), f"{time.process_time() - began:.1f} processor seconds")
        for name, own in (("apart", apart(sources)), ("one", together(population))):
            for row in errors_of(truth, own):
                row["error"] *= 100 / len(truth[row["universe"]][1])
                errors.append({"seed": seed, "made": name, **row})
    frame = pd.DataFrame(errors)
    over_seeds = frame.groupby(["universe", "query", "level", "made"], sort=False)["error"]
    told = over_seeds.mean().unstack("made")
    told["spread"] = over_seeds.std().unstack("made")["apart"]
    with pd.option_context("display.width", 250, "display.max_columns", 20):
        print(told.unstack("level").swaplevel(axis=1)[list(LEVELS)[1:]].round(2).to_string())


def one_population(sources: Sources) -> Population:
    """One population of the releases, made in this process."""
    source = read_released(sources)
    own = blocks_of(source)
    every = own.counties()
    made = [populate_county(own.part(*one)) for one in every]
    members = join_members(made, own.household_starts[[first for first, _ in every]])
    return Population(source, close_states(own, members))


def tell_run(root: Path) -> None:
    """Print the sums of errors of a finished run of several products, in records."""
    settings = frozen_settings(PRODUCT.settings, RunDirectory(root).settings)
    sources = Sources(*(RunDirectory(root / part) for part in settings.population))
    population = population_of_pieces(RunDirectory(root), sources)
    truth = counted(root)
    made = {"apart": apart(sources), "one": together(population)}
    rows = [{"made": name, **row} for name, own in made.items() for row in errors_of(truth, own)]
    frame = pd.DataFrame(rows).set_index(["universe", "query", "level", "made"])["error"]
    told = frame.unstack("level")[list(LEVELS)].unstack("made").astype(int)
    with pd.option_context("display.width", 250, "display.max_columns", 20):
        print(
            told.reindex(
                pd.MultiIndex.from_tuples(
                    dict.fromkeys((row["universe"], row["query"]) for row in rows)
                )
            ).to_string()
        )


def counted(root: Path) -> Tables:
    """Persons and households as the products of a run counted them in confidence."""
    found = {}
    universes = (person_levels.universe(), household_types.universe())
    for (universe, part), declared in zip(PRODUCT_OF.items(), universes, strict=True):
        file = root / part / "confidential" / "histograms" / f"{universe}.parquet"
        table = pq.read_table(file)
        n = table["count"].to_numpy()
        codes = np.char.replace(np.array(table["block_geocode"].to_pylist(), dtype=str), ".", "")
        found[universe] = (declared.schema, np.repeat(codes, n), np.repeat(table["cell"], n))
    return found


def sources_of(folder: Path, name: str, privacy: str) -> Sources:
    """The three runs of a name, made unless they are there."""
    file = folder / f"r{name}.toml"
    file.write_text(SETTINGS.format(privacy=privacy), encoding="utf-8")
    settings = PRODUCT.load(file)
    run = RunDirectory((folder / f"r{name}").resolve())
    run.root.mkdir(exist_ok=True)
    for part, chosen in settings.products.chosen().items():
        if not (run.root / part / "release").exists():
            own = _with_release_folders(chosen, run)
            run_stages_in_process(product(own.PRODUCT), prepare(own, run.root / part), own)
    return Sources(*(RunDirectory(run.root / part) for part in settings.population))


def apart(sources: Sources) -> Tables:
    """Persons and households as they were released."""
    found = read_released(sources)
    return _tables(found, found.person_levels, found.household_levels)


def together(population: Population) -> Tables:
    """Persons and households of one population."""
    return _tables(population.source, population.person_levels(), population.household_levels())


def _tables(found: Released, of_persons: np.ndarray, of_households: np.ndarray) -> Tables:
    persons, households = person_levels.universe().schema, household_types.universe().schema
    return {
        "persons": (persons, found.blocks[found.person_block], _cells(persons, of_persons)),
        "households": (
            households,
            found.blocks[found.household_block],
            _cells(households, of_households),
        ),
    }


def _cells(schema: Schema, levels: np.ndarray) -> np.ndarray:
    return schema.cells(dict(zip(schema.attributes, levels, strict=True)))


def errors_of(truth: Tables, found: Tables) -> Iterator[dict[str, Any]]:
    """Sums of absolute errors of every query of both universes at every level, in records."""
    for universe, (schema, geocode, cells) in found.items():
        _, true_code, true_cells = truth[universe]
        for query in QUERIES[universe]:
            row = marginal_query(schema, query).row_of_cell
            for level, digits in LEVELS.items():
                pairs = ((true_code, true_cells, 1), (geocode, cells, -1))
                frames = [
                    pd.DataFrame({"area": _shortened(code, digits), "row": row[cell], "sign": sign})
                    for code, cell, sign in pairs
                ]
                differences = pd.concat(frames).groupby(["area", "row"])["sign"].sum()
                error = float(abs(differences).sum())
                yield {"universe": universe, "query": query, "level": level, "error": error}


def _shortened(codes: np.ndarray, digits: int) -> np.ndarray:
    return codes.astype(f"<U{digits}")


if __name__ == "__main__":
    main()
