"""Counties of a state: which blocks they are, and that it does not matter what makes them when."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from spineflow.tasks.population.estimation import pieces
from spineflow.tasks.population.estimation.blocks import (
    Blocks,
    close_states,
    join_members,
    populate_county,
)
from spineflow.tasks.population.estimation.pieces import areas_of, pieces_of
from spineflow.tasks.runs.directory import RunDirectory

from .test_population import assert_one_population, true_census


def codes(*parts: tuple[str, str, int]) -> list[str]:
    """Codes of so many blocks of a county and tract."""
    return [f"44{county}{tract}1{block:04d}" for county, tract, n in parts for block in range(n)]


def blocks_with(areas: list[str], households: list[int]) -> Blocks:
    """Blocks of which only the numbers of households matter."""
    starts = np.append(0, np.cumsum(households))
    none = true_census(np.random.default_rng(1), 1)
    return Blocks(none.persons, none.households, starts, starts, areas_of(areas))


def test_pieces_are_counties_with_households() -> None:
    areas = codes(("001", "000100", 2), ("003", "000200", 3), ("005", "000300", 1))
    assert pieces_of(blocks_with(areas, [5, 4, 2, 6, 1, 3])) == [(0, 2), (2, 5), (5, 6)]
    assert pieces_of(blocks_with(areas, [6, 6, 0, 0, 0, 3])) == [(0, 2), (5, 6)]
    assert pieces_of(blocks_with(areas, [0] * 6)) == []
    assert pieces_of(blocks_with([], [])) == []


def test_pieces_are_the_same_by_files(tmp_path: Path) -> None:
    census = true_census(np.random.default_rng(7), 8)
    areas = codes(("001", "000100", 3), ("001", "000200", 1), ("003", "000100", 4))
    own = replace(census.blocks(), areas=areas_of(areas))
    every = pieces_of(own)
    made = [populate_county(own.part(*one)) for one in every]
    here = join_members(made, own.household_starts[[first for first, _ in every]])
    assert_one_population(census, close_states(own, here))
    run = RunDirectory(tmp_path)
    pieces.write_release_records(run, np.array(areas), own)
    names = pieces.piece_names(run)
    assert len(names) == len(every) == 2
    for name in reversed(names):
        pieces.write_members(run, name, populate_county(pieces.read_piece(run, name)))
    there = pieces.read_members(run, own)
    for field in fields(here):
        assert np.array_equal(getattr(here, field.name), getattr(there, field.name))
