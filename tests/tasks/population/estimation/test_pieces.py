"""Pieces of a state: which blocks they are, and that it does not matter who makes them when."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.population.estimation import pieces
from spineflow.tasks.population.estimation.blocks import Blocks, joined, populated
from spineflow.tasks.population.estimation.pieces import Extent, areas_of, extents
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


def test_pieces_end_with_a_tract_or_county(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "HOUSEHOLDS", 10)
    areas = codes(
        ("001", "000100", 2), ("001", "000200", 3), ("001", "000300", 1), ("003", "000100", 2)
    )
    assert extents(blocks_with(areas, [5, 4, 2, 6, 1, 3, 1, 1])) == [
        Extent(0, 5),
        Extent(5, 6),
        Extent(6, 8),
    ]
    assert extents(blocks_with(areas, [6, 6, 0, 0, 0, 0, 0, 0])) == [Extent(0, 2)]
    assert extents(blocks_with(areas, [0] * 8)) == []
    assert extents(blocks_with([], [])) == []


@pytest.mark.slow
def test_pieces_are_the_same_by_files_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "HOUSEHOLDS", 15)
    census = true_census(np.random.default_rng(7), 12)
    areas = codes(
        ("001", "000100", 3), ("001", "000200", 3), ("001", "000300", 2), ("003", "000100", 4)
    )
    own = Blocks(
        census.persons,
        census.households,
        census.person_starts,
        census.household_starts,
        areas_of(areas),
    )
    every = extents(own)
    assert len(every) > 2
    here = joined(
        own,
        [one.first for one in every],
        [populated(own.part(one.first, one.end)) for one in every],
    )
    assert_one_population(census, here)
    run = RunDirectory(tmp_path)
    pieces.write_released(run, np.array(areas), own)
    for name in reversed(pieces.piece_names(run)):
        piece = pieces.read_piece(run, name)
        pieces.write_made(run, name, piece, populated(piece))
    there = joined(own, [one.first for one in every], pieces.read_made(run, own, every))
    for field in fields(here.members):
        assert np.array_equal(getattr(here.members, field.name), getattr(there.members, field.name))
    assert here.way == there.way
    assert np.array_equal(here.cost, there.cost, equal_nan=True)
