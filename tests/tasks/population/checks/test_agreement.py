"""Three small releases of blocks, the one population that is made of them, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.population.checks.accuracy import measure_areas, read_population, true_records
from spineflow.tasks.population.estimation.blocks import (
    blocks_of,
    piece_names,
    populate_county,
    read_piece,
    write_members,
    write_release_records,
)
from spineflow.tasks.population.ingest.released import PersonsAndHouseholds, Sources, read_released
from spineflow.tasks.population.release.population import population_of_pieces, write_population
from spineflow.tasks.population.workload import household_types, person_levels
from spineflow.tasks.runs.directory import RunDirectory

from .test_measures import FITTING, A, B, C, Household, Person, household, levels, person

UNITS = [(A, "rented"), (A, "for rent"), (B, "rented"), (C, "GQ 101")]
APART = (
    [*FITTING[0], person(B, "sibling", 30, "female")],
    [
        FITTING[1][0],
        household(B, "no couple; relatives; own none; children none; no minors; size 2"),
    ],
)
"""Released apart: in the second block a householder alone, and a household of two."""


def counts(blocks: Sequence[str], cells: np.ndarray) -> dict[str, pa.Array]:
    """A row for each block and cell, with how often it is there."""
    found = Counter(zip(blocks, cells.tolist(), strict=True))
    codes, cell = zip(*found, strict=True)
    return {"code": pa.array(codes), "cell": pa.array(cell), "count": pa.array(found.values())}


def cells_of(rows: Sequence[Person] | Sequence[Household], schema) -> np.ndarray:
    return np.ravel_multi_index(tuple(levels(schema, [row[1:] for row in rows])), schema.shape)


def write(run: RunDirectory, universe: str, rows: dict[str, pa.Array], *, is_true: bool) -> None:
    """Released counts, of which each block has its spine's digits before its own; or true ones."""
    path = run.histogram(universe) if is_true else run.estimates(universe, "Block", "00000")
    path.parent.mkdir(parents=True, exist_ok=True)
    name = "block_geocode" if is_true else "geocode"
    codes = rows["code"] if is_true else pa.array([f"0{code}" for code in rows["code"].to_pylist()])
    pq.write_table(pa.table({name: codes, "cell": rows["cell"], "count": rows["count"]}), path)


def sources_of(
    folder: Path, people: Sequence[Person], homes: Sequence[Household], *, is_true: bool = False
) -> Sources:
    redistricting, units, persons = (RunDirectory(folder / name) for name in ("r", "u", "p"))
    kinds = household_types.unit_kinds().labels("tenvacgq")
    for run, universe, rows in (
        (
            persons,
            person_levels.PERSONS,
            counts([row[0] for row in people], cells_of(people, person_levels.universe().schema)),
        ),
        (
            units,
            household_types.HOUSEHOLDS,
            counts([row[0] for row in homes], cells_of(homes, household_types.universe().schema)),
        ),
        (
            units,
            household_types.UNITS,
            counts(
                [block for block, _ in UNITS], np.array([kinds.index(kind) for _, kind in UNITS])
            ),
        ),
    ):
        write(run, universe, rows, is_true=is_true)
    return Sources(redistricting, units, persons)


def sorted_rows(found: PersonsAndHouseholds) -> tuple[list, list]:
    """Persons and households as lists of their block and labels' levels, in some one order."""
    return tuple(
        sorted(
            (found.blocks[block], *own)
            for block, own in zip(at, own_levels.T.tolist(), strict=True)
        )
        for at, own_levels in (
            (found.person_block, found.person_levels),
            (found.household_block, found.household_levels),
        )
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sources, Path, RunDirectory]:
    """The releases, the folder of the one population, and the run in which it was made."""
    folder = tmp_path_factory.mktemp("population")
    sources = sources_of(folder / "parts", *APART)
    run = RunDirectory(folder / "run")
    write_release_records(run, blocks_of(read_released(sources)))
    for name in piece_names(run):
        write_members(run, name, populate_county(read_piece(run, name)))
    (folder / "release").mkdir()
    write_population(population_of_pieces(run, sources), folder / "release")
    return sources, folder / "release", run


def test_what_is_released_of_every_block_is_read(made: tuple) -> None:
    sources, *_ = made
    found = read_released(sources)
    assert found.blocks.tolist() == [A, B, C]
    assert np.bincount(found.person_block).tolist() == [3, 2, 1]
    assert found.household_block.tolist() == [0, 1]
    assert np.bincount(found.units.block).tolist() == [2, 1, 1]
    kinds = household_types.unit_kinds().labels("tenvacgq")
    assert [kinds[cell] for cell in found.units.cell] == ["rented", "for rent", "rented", "GQ 101"]
    assert found.inside.tolist() == [0, 1, 2, 3, 4], "of the persons all but one of the facility"


def test_releases_apart_have_the_records_that_were_released(made: tuple) -> None:
    sources, *_ = made
    found = read_released(sources)
    people, homes = APART
    blocks = np.array([A, B, C])
    given = PersonsAndHouseholds(
        blocks,
        np.searchsorted(blocks, [row[0] for row in people]),
        levels(person_levels.universe().schema, [row[1:] for row in people]),
        np.searchsorted(blocks, [row[0] for row in homes]),
        levels(household_types.universe().schema, [row[1:] for row in homes]),
    )
    assert sorted_rows(found) == sorted_rows(given)
    assert found.person_unit is None and found.unit is None
    assert measure_areas(found, 16) == measure_areas(given, 16)


def test_true_records_are_those_of_the_input_while_they_are_there(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, *FITTING, is_true=True)
    found = true_records(sources)
    assert found is not None
    assert (
        sorted_rows(found)[0]
        == sorted_rows(read_released(sources_of(tmp_path / "apart", *FITTING)))[0]
    )
    assert not any(
        measure.startswith("M1") and ratio.number
        for measure, ratio in measure_areas(found, 16).items()
    )
    sources.units.histogram(household_types.HOUSEHOLDS).unlink()
    assert true_records(sources) is None


def test_one_population_is_read_from_its_files(made: tuple) -> None:
    """The second block's householder is alone no more, since somebody lives there, too."""
    sources, folder, _ = made
    found = read_population(folder)
    assert found.blocks.tolist() == [A, B, C]
    people = pq.read_table(folder / "population_persons.parquet").to_pylist()
    assert [row["geocode"] for row in people] == [A, A, A, B, B, C]
    assert found.person_block.tolist() == [0, 0, 0, 1, 1, 2]
    assert found.person_unit is not None and found.unit is not None
    assert found.person_unit.tolist() == [1, 1, 1, 3, 3, -1]
    assert found.unit.tolist() == [1, 3], "vacant units and facilities have nobody"
    assert found.household_block.tolist() == [0, 1]
    schema = person_levels.universe().schema
    for at, name in enumerate(schema.attributes):
        labels = [schema.labels(name)[level] for level in found.person_levels[at]]
        assert labels == [row[name] for row in people]
    homes = pq.read_table(folder / "population_units.parquet").to_pylist()
    assert [(row["occupied"], row["size"]) for row in homes] == [
        *((True, 3), (False, 0), (True, 2), (None, None)),
    ]
    schema = household_types.universe().schema
    occupied = [row for row in homes if row["occupied"]]
    for at, name in enumerate(schema.attributes):
        labels = [schema.labels(name)[level] for level in found.household_levels[at]]
        assert labels == [row[name] for row in occupied]
    whole = measure_areas(found, 16)
    met = [own for one, own in whole.items() if one[:2] in ("M3", "M5", "M8")]
    assert len(met) == 3 and all(own.number == own.of > 0 for own in met)
