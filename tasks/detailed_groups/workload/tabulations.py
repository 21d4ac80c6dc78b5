"""Tables of one kind, from a total to the finest, and the cells that a noisy total gives a group.

Every table's cells are unions of those of the next. The finest cells that a record can be in are
those of the records' kind, for households each type with each tenure; a tabulation tells in which
cell of every table each of these is. Tables of households are those of SafeTab-H, whose rows have
the codes of categories: a table shows some categories, of which those that hold no other shown one
are measured, and the others are sums of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .iterations import N_CELLS, cells_of_table
from .mechanism import ConfigKeys

KEY = ("region_type", "region_id", "iteration_code")
"""The columns that name a group."""

NOT_MEASURED = -1
"""The table of a group that is not measured: it has no counts."""


@dataclass(frozen=True, eq=False)
class Tabulation:
    """Tables by number, 0 being the total.

    `names` are those of the tables, `cell_of` (n_tables, n_finest) the cell of every table in which
    each finest cell is, and `n_cells` (n_tables,) the numbers of cells.
    """

    names: tuple[str, ...]
    cell_of: np.ndarray
    n_cells: np.ndarray

    def offsets(self, table: np.ndarray) -> np.ndarray:
        """Where the counts of each group begin, one after the other, shape (n_groups + 1,).

        `table` (n_groups,) may be `NOT_MEASURED`.
        """
        numbers = np.append(self.n_cells, 0)[table]
        return np.concatenate([[0], np.cumsum(numbers)])


SEX_BY_AGE = Tabulation(
    ("T01001", "T02001", "T02002", "T02003"),
    np.stack([cells_of_table(table) for table in sorted(N_CELLS)]),
    np.array([N_CELLS[table] for table in sorted(N_CELLS)]),
)
"""Tables of persons: a total, or sex by 4, 9 or 23 ages."""

TYPES = ("1", "2", "3", "4", "5")
"""Types of households: a married couple, a family of a man, of a woman, alone, not alone."""
TENURES = ("1", "2", "3")
"""Owned with a mortgage or loan, owned free and clear, rented with or without payment."""

N_FINEST = len(TYPES) * len(TENURES)
"""Cells of a household: type by tenure, row-major."""


@dataclass(frozen=True)
class Category:
    """A category of households: its code in released rows, its name, and the types or tenures, by
    position, that are in it.
    """

    code: int
    name: str
    members: frozenset[int]


@dataclass(frozen=True, eq=False)
class HouseholdTabulation:
    """Tables of households by type, or by tenure.

    name : as released files, budgets and thresholds name it.
    what : of the tables, in words.
    names : of the tables.
    categories : all of them, in the order of their codes.
    shown : the codes that each table shows.
    positions : the type or tenure, by position, of each of the `N_FINEST` cells.
    """

    name: str
    what: str
    names: tuple[str, ...]
    categories: tuple[Category, ...]
    shown: tuple[tuple[int, ...], ...]
    positions: np.ndarray

    @property
    def keys(self) -> ConfigKeys:
        """The keys of `config.json` that this tabulation has."""
        return ConfigKeys(
            f"privacy_budget_h_{self.name}", f"thresholds_h_{self.name}", len(self.names) - 1
        )

    def measured(self, table: int) -> tuple[Category, ...]:
        """The categories that a table measures: its shown ones that hold no other of them."""
        own = [self.categories[code] for code in self.shown[table]]
        return tuple(one for one in own if not any(other.members < one.members for other in own))

    def cells_in(self, table: int, code: int) -> np.ndarray:
        """Mask of the measured cells of a table that a category is the sum of."""
        whole = self.categories[code].members
        return np.array([cell.members <= whole for cell in self.measured(table)])

    @cached_property
    def tabulation(self) -> Tabulation:
        """The measured cells of every table."""
        cell_of = np.stack(
            [
                np.array(
                    [
                        next(i for i, one in enumerate(self.measured(table)) if own in one.members)
                        for own in self.positions.tolist()
                    ]
                )
                for table in range(len(self.names))
            ]
        )
        return Tabulation(self.names, cell_of, cell_of.max(axis=1) + 1)


def _categories(*named: tuple[str, tuple[int, ...]]) -> tuple[Category, ...]:
    return tuple(Category(i, name, frozenset(own)) for i, (name, own) in enumerate(named))


HOUSEHOLD_TYPES = HouseholdTabulation(
    "t3",
    "household type",
    ("T03001", "T03002", "T03003", "T03004"),
    _categories(
        ("Total households", (0, 1, 2, 3, 4)),
        ("Family households", (0, 1, 2)),
        ("Married couple family", (0,)),
        ("Other family", (1, 2)),
        ("Male householder, no spouse present", (1,)),
        ("Female householder, no spouse present", (2,)),
        ("Nonfamily households", (3, 4)),
        ("Householder living alone", (3,)),
        ("Householder not living alone", (4,)),
    ),
    ((0,), (0, 1, 6), (0, 1, 2, 3, 6, 7, 8), (0, 1, 2, 3, 4, 5, 6, 7, 8)),
    np.repeat(np.arange(len(TYPES)), len(TENURES)),
)
TENURE = HouseholdTabulation(
    "t4",
    "tenure",
    ("T04001", "T04002"),
    _categories(
        ("Total households", (0, 1, 2)),
        ("Owned with a mortgage or a loan", (0,)),
        ("Owned free and clear", (1,)),
        ("Renter occupied", (2,)),
    ),
    ((0,), (0, 1, 2, 3)),
    np.tile(np.arange(len(TENURES)), len(TYPES)),
)

HOUSEHOLD_TABULATIONS: Mapping[str, HouseholdTabulation] = {
    one.name: one for one in (HOUSEHOLD_TYPES, TENURE)
}
"""Both tabulations of households by name, in the order in which they are released."""
