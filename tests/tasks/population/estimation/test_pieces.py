"""Pieces of a state: which blocks they are, and that it does not matter who makes them when."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.population.estimation import pieces
from spineflow.tasks.population.estimation.blocks import Blocks, Piece, joined, populated
from spineflow.tasks.population.estimation.drift import Drift
from spineflow.tasks.population.estimation.pieces import (
    areas_of,
    extents,
)
from spineflow.tasks.population.workload.places import bands_of
from spineflow.tasks.runs.directory import RunDirectory

from benchmarks.one_population import populated_in_chains

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
        (0, 5),
        (5, 6),
        (6, 8),
    ]
    assert extents(blocks_with(areas, [6, 6, 0, 0, 0, 0, 0, 0])) == [(0, 2)]
    assert extents(blocks_with(areas, [0] * 8)) == []
    assert extents(blocks_with([], [])) == []


def test_chains_stay_in_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHAINS", 2)
    states = ["09", "09", "09", "09", "44", "44", "44", "44", "50"]
    before = [pieces.earlier(number, states) for number in range(len(states))]
    assert before == [None, None, 0, 1, None, None, 4, 5, None]


def test_pieces_are_the_same_by_files_chain_by_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "HOUSEHOLDS", 10)
    monkeypatch.setattr(pieces, "CHAINS", 2)
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
    assert len(every) > 3
    made = populated_in_chains(own, every)
    here = joined(own, [first for first, _ in every], made)
    assert_one_population(census, here)
    run = RunDirectory(tmp_path)
    pieces.write_released(run, np.array(areas), own)
    names = list(pieces.pieces_before(run))
    for name in names[1::2] + names[::2]:
        piece, drift = pieces.read_piece(run, name), pieces.drift_before(run, name)
        pieces.write_made(run, name, piece, populated(piece, drift), drift)
    read = pieces.read_made(run, own, every)
    there = joined(own, [first for first, _ in every], read)
    for field in fields(here.members):
        assert np.array_equal(getattr(here.members, field.name), getattr(there.members, field.name))
    assert here.way == there.way
    for one, other in zip(made, read, strict=True):
        assert np.array_equal(one.cost, other.cost, equal_nan=True)


@pytest.mark.soak
def test_what_pieces_change_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adults are released in each other's blocks, so that every block has to change some of them,
    while all blocks together need no change."""
    monkeypatch.setattr(pieces, "HOUSEHOLDS", 12)
    rng = np.random.default_rng(12)
    census = true_census(rng, 100)
    adults = np.flatnonzero(census.persons.age >= 18)
    moved = rng.permutation(adults)
    mixed = {name: getattr(census.persons, name).copy() for name in ("relationship", "sex", "age")}
    for values in mixed.values():
        values[adults] = values[moved]
    own = Blocks(
        replace(census.persons, **mixed),
        census.households,
        census.person_starts,
        census.household_starts,
        areas_of(codes(*(("001", f"{tract:06d}", 2) for tract in range(50)))),
    )
    every = extents(own)

    def changed(made: list[Piece]) -> tuple[int, int]:
        """Numbers by relationship and by band of ages that are others than before."""
        now = joined(own, [first for first, _ in every], made).members
        pairs = (
            (mixed["relationship"], now.relationship),
            (bands_of(mixed["age"]), bands_of(now.age)),
        )
        counts = [[np.bincount(levels, minlength=40) for levels in pair] for pair in pairs]
        relationships, bands = (int(abs(after - before).sum()) for before, after in counts)
        return relationships, bands

    alone = changed([populated(own.part(*one), Drift()) for one in every])
    chained = changed(populated_in_chains(own, every))
    assert chained[0] < 0.75 * alone[0]
    assert chained[1] < 0.75 * alone[1]
