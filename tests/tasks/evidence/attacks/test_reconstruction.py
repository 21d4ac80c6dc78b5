"""Blocks that are known to have one solution, and small ones of which all solutions are listed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.evidence.attacks import reconstruction
from spineflow.tasks.evidence.attacks.reconstruction import (
    UNBOUNDED,
    BlockStatus,
    Effort,
    TableSystem,
    reconstruct,
    system_of_tables,
)

from tests.tasks.evidence.attacks.blocks import histograms, totals_of


class SevenPersons:
    """The block of [DatabaseReconstruction2019]: counts, medians and means.

    Counts of one or two are withheld. Cells are sex, race, marriage and age to 125. A median of
    four is half the sum of the two in the middle, so that every such sum has variables that tell
    how far these two are apart.
    """

    PEOPLE = (
        *((0, 0, 0, 8), (1, 1, 0, 18), (0, 1, 0, 24), (1, 1, 1, 30)),
        *((0, 0, 1, 36), (0, 0, 1, 66), (1, 0, 1, 84)),
    )
    """Female black single 8, male white single 18, and so on: the published solution."""

    def __init__(self) -> None:
        shape = (2, 2, 2, 126)
        self.n_people = int(np.prod(shape))
        sex, race, married, self.age = (axis.ravel() for axis in np.indices(shape))
        everyone = np.ones(self.n_people, dtype=bool)
        self.rows: list[dict[int, int]] = []
        self.lower: list[int] = []
        self.upper: list[int] = []
        self.n_cells = self.n_people
        for group, count, median, total in (
            (everyone, 7, 30, 266),
            (sex == 0, 4, 30, 134),
            (sex == 1, 3, 30, 132),
            (race == 0, 4, 51, 194),
            (race == 1, 3, 24, 72),
            (married == 1, 4, 51, 216),
            ((race == 0) & (sex == 0), 3, 36, 110),
        ):
            self.count(group, count, count)
            self.add(dict(zip(np.flatnonzero(group), self.age[group], strict=True)), total, total)
            self.median(group, count, median)
        adult = self.age >= 18
        for group in (
            (married == 0) & adult,
            (race == 0) & (sex == 1),
            (race == 1) & (sex == 1),
            (race == 1) & (sex == 0),
            self.age < 5,
            self.age < 18,
            self.age >= 64,
        ):
            self.count(group, 0, 2)
        self.shape = shape

    def add(self, row: dict[int, int], lower: int, upper: int) -> None:
        self.rows.append(row)
        self.lower.append(lower)
        self.upper.append(upper)

    def count(self, group: np.ndarray, lower: int, upper: int, **further: int) -> None:
        row = dict.fromkeys(np.flatnonzero(group).tolist(), 1)
        self.add(row | {int(name[1:]): value for name, value in further.items()}, lower, upper)

    def median(self, group: np.ndarray, count: int, median: int) -> None:
        age, half = self.age, count // 2
        if count % 2:
            self.count(group & (age < median), 0, half)
            self.count(group & (age <= median), half + 1, count)
            return
        apart = range(median + 1)
        cells = {distance: self.n_cells + distance for distance in apart}
        self.n_cells += len(apart)
        self.add(dict.fromkeys(cells.values(), 1), 1, 1)
        for distance, cell in cells.items():
            low, high = median - distance, median + distance
            allowed, needed = {f"_{cell}": half + 1}, {f"_{cell}": -half}
            self.count(group & (age < low), 0, count, **allowed)
            self.count(group & (age > high), 0, count, **allowed)
            self.count(group & (age <= low), 0, count, **needed)
            self.count(group & (age >= high), 0, count, **needed)

    def system(self) -> TableSystem:
        matrix = sparse.dok_array((len(self.rows), self.n_cells), dtype=np.int64)
        for number, row in enumerate(self.rows):
            for cell, value in row.items():
                matrix[number, cell] = value
        return TableSystem(sparse.csr_array(matrix))


@pytest.mark.soak(13)
def test_the_block_of_seven_persons_has_one_solution() -> None:
    block = SevenPersons()
    bounds = np.array([block.lower]), np.array([block.upper])
    found = reconstruct(block.system(), *bounds, effort=Effort(seconds=60, solver_nodes=10_000))
    assert found.status.tolist() == [BlockStatus.UNIQUE]
    people = found.cell[found.cell < block.n_people]
    expected = np.ravel_multi_index(tuple(np.array(block.PEOPLE).T), block.shape)
    assert people.tolist() == sorted(expected.tolist())
    assert (found.count == 1).all()


def random_blocks(seed: int) -> tuple[TableSystem, np.ndarray, np.ndarray, np.ndarray]:
    """A system of tables over 3 x 2 x 2 cells, and bounds and people of some blocks."""
    draws = np.random.default_rng(seed)
    a, b, c = (axis.ravel() for axis in np.indices((3, 2, 2)))
    tables = [a * 2 + b, b * 2 + c, a * 2 + c, np.where(b == 1, a, -1), c]
    chosen = draws.permutation(len(tables))[: draws.integers(1, 4)]
    system = system_of_tables([0 * a, *(tables[number] for number in chosen)])
    people = np.array(
        [np.bincount(draws.integers(0, 12, draws.integers(0, 6)), minlength=12) for _ in range(20)]
    )
    exact = totals_of(system, people)
    slack = draws.integers(0, 2, (2, *exact.shape)) * (draws.random((20, 1)) < 0.4)
    slack[:, :, 0] = 0
    return system, np.maximum(exact - slack[0], 0), exact + slack[1], people


def every_histogram(people: int) -> np.ndarray:
    """All histograms of twelve cells with so many people."""
    if people == 0:
        return np.zeros((1, 12), dtype=np.int64)
    smaller = every_histogram(people - 1)
    grown = smaller[:, None, :] + np.eye(12, dtype=np.int64)
    return np.unique(grown.reshape(-1, 12), axis=0)


def faults(attack=reconstruct) -> list[str]:
    """What is wrong with the claims on 200 small blocks, by listing all their solutions."""
    listed = {people: every_histogram(people) for people in range(6)}
    wrong, alone = [], 0
    for seed in range(10):
        system, lower, upper, people = random_blocks(seed)
        found = attack(system, lower, upper, seed=seed)
        solved = histograms(found, system.n_cells)
        for block in range(len(lower)):
            all_of_them = listed[int(people[block].sum())]
            totals = totals_of(system, all_of_them)
            fits = (totals >= lower[block]).all(axis=1) & (totals <= upper[block]).all(axis=1)
            solutions = all_of_them[fits]
            distance = np.abs(solutions - solved[block]).sum(axis=1)
            unique = found.status[block] == BlockStatus.UNIQUE
            alone += len(solutions) == 1
            if not (distance == 0).any():
                wrong.append("not a solution")
            if unique != (len(solutions) == 1):
                wrong.append("uniqueness")
            if not found.distance_found[block] == distance.max() == found.distance_bound[block]:
                wrong.append("distance")
    assert 20 < alone < 180, "blocks of both kinds"
    return wrong


def test_claims_hold_on_200_blocks_whose_solutions_are_all_listed() -> None:
    assert not faults()


@pytest.mark.slow
def test_an_attack_weakened_on_purpose_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends after one solution, or after two, and one that leaves a table out."""
    enumerate_all = reconstruction.enumerate_solutions
    for kept, fault in ((1, "uniqueness"), (2, "distance")):

        def hasty(*arguments, kept: int = kept):
            return enumerate_all(*arguments)[0][:kept], True

        with monkeypatch.context() as changed:
            changed.setattr(reconstruction, "enumerate_solutions", hasty)
            assert fault in faults()

    def forgetful(system, lower, upper, **options):
        upper = np.where(np.arange(system.n_rows) >= system.n_rows - 2, UNBOUNDED, upper)
        lower = np.where(np.arange(system.n_rows) >= system.n_rows - 2, 0, lower)
        return reconstruct(system, lower, upper, **options)

    assert "not a solution" in faults(attack=forgetful)


def test_impossible_tables_are_told_and_solutions_are_drawn_evenly() -> None:
    cells = np.arange(4)
    system = system_of_tables([cells // 2, cells % 2])
    lower = np.array([[1, 1, 1, 2], [1, 1, 1, 1], [0, 0, 0, 0]])
    found = reconstruct(system, lower, lower)
    expected = [BlockStatus.IMPOSSIBLE, BlockStatus.SEVERAL, BlockStatus.UNIQUE]
    assert found.status.tolist() == expected
    assert found.persons.tolist() == [0, 2, 0]
    assert found.solution_variability()[0].tolist() == [0, 100, 0]
    many = reconstruct(system, np.ones((1000, 4)), np.ones((1000, 4)), seed=3)
    first = histograms(many, 4)[:, 0].sum()
    assert 430 < first < 570


def test_withheld_rows_leave_open_what_they_told() -> None:
    cells = np.array(list(product(range(2), range(3))))
    system = system_of_tables([cells[:, 0] * 3 + cells[:, 1], cells[:, 0]])
    exact = totals_of(system, np.array([[3, 1, 2, 0, 4, 1]]))
    lower, upper = exact.copy(), exact.copy()
    lower[0, :2], upper[0, :2] = 0, UNBOUNDED
    found = reconstruct(system, lower, upper)
    # Four persons are in the two withheld cells together: 0 to 4 of them in the first.
    assert found.status.tolist() == [BlockStatus.SEVERAL]
    histogram = histograms(found, 6)[0]
    assert histogram[:2].sum() == 4
    assert found.distance_found[0] == 2 * max(histogram[0], 4 - histogram[0])
    upper[0, 0] = 0
    assert reconstruct(system, lower, upper).status.tolist() == [BlockStatus.UNIQUE]
