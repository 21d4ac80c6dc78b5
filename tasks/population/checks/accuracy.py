"""The section of a report on how far persons and households agree: as separate releases, as one
population, and, of input that is not confidential, in truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...census.schema import Schema
from ...pages.document import NONE, Cell, Details, Section, Table
from ...runs.directory import RunDirectory
from ...runs.files import read_record
from ..ingest.released import Sources, group_by_block, read_released
from ..release.population import NOBODY, PERSONS_FILE, SUMMARY_FILE, UNITS_FILE
from ..workload import household_types, person_levels
from .measures import GEOLEVELS, Measure, PersonsAndHouseholds, Ratio, measure_areas

TITLE = "Persons and households that agree"


def agreement_section(sources: Sources, folder: Path, *, with_truth: bool) -> Section:
    """Agreement of persons and households, and changes to the separate releases.

    folder : folder of the one population. with_truth : whether the input may be shown; never if any
    run's input is confidential.
    """
    records = {"apart": released_apart(sources), "one population": read_population(folder)}
    truth = true_records(sources) if with_truth else None
    if truth is not None:
        records["truth"] = truth
    found = {
        level: {name: measure_areas(own, digits) for name, own in records.items()}
        for level, digits in GEOLEVELS.items()
    }
    blocks = found["block"]
    whole = {
        name: {one: ratio for one, ratio in own.items() if not one.part}
        for name, own in blocks.items()
    }
    about = (
        "Share of blocks with persons in households or occupied units for which each statement is "
        "true, in percent: in the products' own releases, which were made independently, and in "
        "the one population made of them. M1 and M4 should be 0, M3 and M5 to M8 should be 100. "
        "Seven members represent seven and more, as in published tables, so that M2 and M9 miss "
        "larger households even where all agree."
    )
    details = [
        Details(f"By {level}, with what each is made of", (_table(level, own),))
        for level, own in found.items()
    ]
    made = _count_changes(read_record(folder / SUMMARY_FILE))
    return Section(TITLE, (about, _table("all blocks", whole), *details, *made))


def true_records(sources: Sources) -> PersonsAndHouseholds | None:
    """The records of the input; None if a run no longer has them. They are in no released file;
    callers must have checked that no run's input is confidential.
    """
    runs = (
        (sources.persons, person_levels.PERSONS),
        (sources.units, household_types.HOUSEHOLDS),
    )
    if not all(run.histogram(universe).exists() for run, universe in runs):
        return None
    tables = [_counts(run, universe) for run, universe in runs]
    blocks, (people, homes) = group_by_block(tables)
    persons = np.stack(people.levels(person_levels.universe().schema))
    households = np.stack(homes.levels(household_types.universe().schema))
    return PersonsAndHouseholds(blocks, people.block, persons, homes.block, households)


def _counts(run: RunDirectory, universe: str) -> pa.Table:
    """Geocode, cell and count of all entries of a universe."""
    table = pq.read_table(run.histogram(universe), columns=["block_geocode", "cell", "count"])
    return table.rename_columns(["geocode", "cell", "count"])


def released_apart(sources: Sources) -> PersonsAndHouseholds:
    """The records of the separate releases, in which persons have no units."""
    found = read_released(sources)
    return PersonsAndHouseholds(
        found.blocks,
        found.persons.block,
        found.person_levels,
        found.household_block,
        found.household_levels,
    )


def read_population(folder: Path) -> PersonsAndHouseholds:
    """The records of one population, from its two files alone."""
    schemas = (person_levels.universe().schema, household_types.universe().schema)
    people, homes = (
        pq.read_table(folder / name, columns=["geocode", "unit", *further, *schema.attributes])
        for name, further, schema in zip(
            (PERSONS_FILE, UNITS_FILE), ((), ("occupied",)), schemas, strict=True
        )
    )
    homes = homes.filter(pc.field("occupied"))
    every = pc.unique(pa.chunked_array([*people["geocode"].chunks, *homes["geocode"].chunks]))
    blocks = every.take(pc.sort_indices(every))
    of_person, of_home = (_positions(one["geocode"], blocks) for one in (people, homes))
    unit, home = (pc.fill_null(one["unit"], NOBODY).to_numpy() for one in (people, homes))
    persons, households = map(_levels, (people, homes), schemas)
    codes = np.array(blocks.to_pylist(), dtype=str)
    return PersonsAndHouseholds(codes, of_person, persons, of_home, households, unit, home)


def _levels(table: pa.Table, schema: Schema) -> np.ndarray:
    """Level of each row in each attribute `(n_attributes, n)`."""
    labels = {name: pa.array(schema.labels(name), pa.string()) for name in schema.attributes}
    return np.stack([_positions(table[name], known) for name, known in labels.items()])


def _positions(values: pa.ChunkedArray, known: pa.Array) -> np.ndarray:
    """Position of each value among known ones."""
    return pc.index_in(values, value_set=known).to_numpy().astype(np.int64)


def _table(areas: str, found: Mapping[str, Mapping[Measure, Ratio]]) -> Table:
    """A row for each measure of any of the records, a column for each of them."""
    measures = dict.fromkeys(one for own in found.values() for one in own)
    # In the order of their numbers, and in the order of measurement within a number.
    ordered = sorted(measures, key=lambda one: one.number)
    return Table(
        (f"{areas}, %", *found),
        tuple(
            (
                f"{one.number}: {one.part or one.words}",
                *(_percent(own.get(one)) for own in found.values()),
            )
            for one in ordered
        ),
        "one population",
    )


def _percent(ratio: Ratio | None) -> Cell:
    """A ratio in percent, to two digits; less than all is not shown as 100."""
    if ratio is None or (percent := ratio.percent) is None:
        return NONE
    if abs(ratio.number) == ratio.of or not ratio.number:
        return round(percent, 2)
    nearest = round(percent, 2)
    return nearest if abs(nearest) not in (0, 100) else float(f"{percent:.6g}")


def _count_changes(summary: Mapping[str, Any]) -> Iterator[str | Table]:
    """Changes to the separate releases."""
    yield "How many blocks and records differ from the products' own releases:"
    persons = summary["persons_in_households"]
    rows = [(name, summary[f"{name}_changed"], summary[name]) for name in ("blocks", "households")]
    rows += [
        (f"persons: {name}", number, persons) for name, number in summary["persons_changed"].items()
    ]
    yield Table(
        ("changed", "number", "percent"),
        tuple((name, number, _percent(Ratio(number, of))) for name, number, of in rows),
    )
