"""Groups 'alone' that have more than those 'in any combination', in sum or cell by cell."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.validation.detailed_groups.measured import GroupCounts
from spineflow.validation.detailed_groups.run_checks import _suppress_alone, float_threshold
from spineflow.validation.detailed_groups.tables import AGE_BINS, N_CELLS
from spineflow.validation.detailed_groups.universe import ExpectedLevel

REGIONS = ("first", "second")
COUNTERPARTS = {"alone": "combined", "another": "elsewhere"}


def cells_of(table: int, **counts: int) -> list[int]:
    """Counts of a table of ages, nothing but what is named: m or f, and the first age of a bin."""
    cells = np.zeros((2, len(AGE_BINS[table])), dtype=np.int64)
    for name, count in counts.items():
        cells["mf".index(name[0]), AGE_BINS[table].index(int(name[1:]))] = count
    return cells.ravel().tolist()


def shown(alone: tuple[int, list[int]], combined: tuple[int, list[int]], *, by_cell: bool) -> bool:
    """Whether the group alone is shown in the second region; in the first one both are empty.

    Each group is given by its table and its counts.
    """
    level = ExpectedLevel("COUNTY", 1, None, (), 1, REGIONS, ("combined", "alone"), np.zeros(2), 3)
    # Three groups of other levels come before.
    tables = [0, 0, 0, 0, 0, combined[0], alone[0]]
    cells = [[1], [1], [1], [0], [0], combined[1], alone[1]]
    assert [len(own) for own in cells] == N_CELLS[tables].tolist()
    first = np.cumsum([0, *map(len, cells[:-1])])
    counts = GroupCounts(
        np.array(tables),
        first,
        np.concatenate(cells),
        np.ones(7, dtype=bool),
        np.arange(7),
    )
    _suppress_alone(counts, level, COUNTERPARTS, by_cell)
    assert counts.is_shown[[0, 1, 2, 3, 4, 5]].all()
    return bool(counts.is_shown[6])


@pytest.mark.parametrize("by_cell", [True, False])
def test_sums_decide_in_any_case(by_cell: bool) -> None:
    assert shown((0, [4]), (0, [4]), by_cell=by_cell)
    assert not shown((0, [5]), (0, [4]), by_cell=by_cell)
    assert not shown((1, cells_of(1, m0=5)), (0, [4]), by_cell=by_cell)


@pytest.mark.parametrize(
    ("alone", "combined", "is_shown"),
    [
        # The same table: a cell is larger, or none is.
        ((1, cells_of(1, m18=2, f45=1)), (1, cells_of(1, m18=1, f45=9)), False),
        ((1, cells_of(1, m18=1, f45=1)), (1, cells_of(1, m18=1, f45=9)), True),
        # The other sex is another cell.
        ((1, cells_of(1, m18=1)), (1, cells_of(1, f18=9)), False),
        # A finer table is added up: 18 to 44 are the bins 18, 25 and 35 of the second.
        ((2, cells_of(2, m18=1, m25=1, m35=1)), (1, cells_of(1, m18=3)), True),
        ((2, cells_of(2, m18=1, m25=1, m35=2)), (1, cells_of(1, m18=3, f0=9)), False),
        ((2, cells_of(2, m45=1)), (1, cells_of(1, m18=3)), False),
        ((1, cells_of(1, m65=2)), (3, cells_of(3, m65=1, m80=1)), True),
        ((1, cells_of(1, m65=2)), (3, cells_of(3, m62=5, m80=1)), False),
        # With a total alone there is nothing to compare cell by cell.
        ((1, cells_of(1, m18=2)), (0, [4]), True),
    ],
)
def test_cells_are_compared_in_the_coarser_of_both_tables(
    alone: tuple[int, list[int]], combined: tuple[int, list[int]], is_shown: bool
) -> None:
    assert shown(alone, combined, by_cell=True) == is_shown
    assert shown(alone, combined, by_cell=False)


@pytest.mark.parametrize("is_pure", [True, False])
@pytest.mark.parametrize("chance", [Fraction(1, 5), Fraction(1, 2), Fraction(19, 20)])
def test_a_threshold_is_the_smallest_with_its_chance(chance: Fraction, is_pure: bool) -> None:
    """Summed up by definition, far beyond where noise of this scale comes to."""
    rate, power = 0.25, 1 if is_pure else 2
    weights = {x: float(np.exp(-rate * abs(x) ** power)) for x in range(-300, 301)}
    total = sum(weights.values())

    def probability(k: int) -> float:
        return sum(weight for x, weight in weights.items() if x <= k) / total

    found = float_threshold(Fraction(1, 2), 2, chance, is_pure=is_pure)
    assert probability(found) >= float(chance) - 1e-12
    assert probability(found - 1) < float(chance)
