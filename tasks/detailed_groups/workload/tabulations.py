"""Tables of one kind, from a total to the finest, and the cells that a noisy total gives a group.

Every table's cells are unions of the next table's. The finest cells of a record depend on its kind:
sex by age for persons, type by tenure for households. Tables of persons follow SafeTab-P, tables of
households SafeTab-H. Every row of a released table shows the sum of consecutive cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

KEY = ("region_type", "region_id", "iteration_code")
"""The columns that name a group."""

NOT_MEASURED = -1
"""The table of a group that is not measured: it has no counts."""

N_SEXES = 2
OLDEST_AGE = 115

AGE_BINS: dict[int, tuple[int, ...]] = {
    1: (0, 18, 45, 65),
    2: (0, 5, 18, 25, 35, 45, 55, 65, 75),
    3: (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""First ages of the bins of each sex by age table: 1 T02001, 2 T02002, 3 T02003. Each table's bins
are unions of the next table's.
"""

FINEST_TABLE = 3
N_CELLS = {0: 1} | {table: N_SEXES * len(bins) for table, bins in AGE_BINS.items()}
"""Counts of each table: 0 is the total; cells are row-major, sex by age."""

Label = int | str | None


@dataclass(frozen=True, eq=False)
class Tabulation:
    """Tables by number, 0 being the total, and their released rows.

    name : as files of households, budgets and thresholds name it.
    what : the tables in words, as in charges.
    records : kind of record.
    names : of the tables.
    cell_of : (n_tables, n_finest), the cell of every table in which each finest cell is.
    rows : for each table (n_rows, 3), of every row its label and the first and the end of its
        cells.
    labels : columns that identify rows in the tidy file, by label; label 0 is the total.
    texts : the text files: of each the columns between keys and count, by label.
    """

    name: str
    what: str
    records: str
    names: tuple[str, ...]
    cell_of: np.ndarray
    rows: tuple[np.ndarray, ...]
    labels: Mapping[str, Sequence[Label]]
    texts: Mapping[str, Mapping[str, Sequence[str]]]

    @property
    def n_cells(self) -> np.ndarray:
        """Numbers of cells of the tables, shape (n_tables,)."""
        return self.cell_of.max(axis=1) + 1

    @property
    def n_thresholds(self) -> int:
        """How many thresholds of a noisy total choose a table."""
        return len(self.names) - 1

    @property
    def thresholds(self) -> str:
        """The key of `config.json` with the thresholds of all levels."""
        return f"thresholds_{self._kind}"

    def budget(self, region_type: str, level: int) -> str:
        """The key of `config.json` with a level's budget."""
        name = region_type.lower().replace("-", "_")
        return f"privacy_budget_{self._kind}_level_{level}_{name}"

    @property
    def _kind(self) -> str:
        return self.name if self.of_persons else f"h_{self.name}"

    @property
    def of_persons(self) -> bool:
        """Whether persons are counted, in tables that a first stage chooses."""
        return self.records == "persons"

    @property
    def folder(self) -> str:
        """Folder of the measurements."""
        return "detailed_groups" if self.of_persons else f"detailed_households/{self.name}"

    def labels_of_cells(self, table: int) -> np.ndarray:
        """The label of each cell of a table, from the row that shows it alone."""
        rows = self.rows[table]
        alone = rows[rows[:, 2] - rows[:, 1] == 1]
        return alone[np.argsort(alone[:, 1]), 0]

    def offsets(self, table: np.ndarray) -> np.ndarray:
        """Where the counts of each group begin, one after the other, shape (n_groups + 1,).

        `table` (n_groups,) may be `NOT_MEASURED`.
        """
        numbers = np.append(self.n_cells, 0)[table]
        return np.concatenate([[0], np.cumsum(numbers)])


def finest_cell(sex: np.ndarray, age: np.ndarray) -> np.ndarray:
    """Cell of the finest table for sex (0 male, 1 female) and age in years; same shape."""
    bins = np.array(AGE_BINS[FINEST_TABLE])
    bin_of_age = (np.searchsorted(bins, np.arange(OLDEST_AGE + 1), side="right") - 1).astype(int)
    return sex * bins.size + bin_of_age[age]


def cells_of_table(table: int) -> np.ndarray:
    """The cell of a table that contains each cell of the finest, shape `(46,)`; 0 for totals.

    >>> cells_of_table(1)[[0, 4, 22, 23]].tolist()
    [0, 1, 3, 4]
    """
    finest = AGE_BINS[FINEST_TABLE]
    if table == 0:
        return np.zeros(N_SEXES * len(finest), dtype=np.int64)
    bins = AGE_BINS[table]
    age = np.searchsorted(bins, finest, side="right") - 1
    return np.concatenate([sex * len(bins) + age for sex in range(N_SEXES)]).astype(np.int64)


def _sex_by_age() -> Tabulation:
    """Each group with 4, 9 or 23 ages has its total, then of each sex the marginal and the ages."""
    ranges = {
        (start, end - 1)
        for bins in AGE_BINS.values()
        for start, end in pairwise([*bins, OLDEST_AGE + 1])
    }
    labels: list[tuple[str, int | None, int | None]] = [("total", None, None)]
    for sex in ("male", "female"):
        labels += [(sex, None, None), *((sex, *ages) for ages in sorted(ranges))]
    place = {label: number for number, label in enumerate(labels)}
    rows = [np.array([[0, 0, 1]])]
    for bins in AGE_BINS.values():
        own, n = [(0, 0, 2 * len(bins))], len(bins)
        for first, sex in ((0, "male"), (n, "female")):
            own.append((place[sex, None, None], first, first + n))
            for cell, (start, end) in enumerate(pairwise([*bins, OLDEST_AGE + 1]), first):
                own.append((place[sex, start, end - 1], cell, cell + 1))
        rows.append(np.array(own))
    sexes, starts, ends = zip(*labels, strict=True)
    in_text = {None: "*"} | {age: str(age) for age in range(OLDEST_AGE + 1)}
    return Tabulation(
        "p",
        "population groups",
        "persons",
        ("T01001", "T02001", "T02002", "T02003"),
        np.stack([cells_of_table(table) for table in N_CELLS]),
        tuple(rows),
        {"sex": sexes, "age_start": starts, "age_end": ends},
        {
            "t1": {},
            "t2": {
                "AGESTART": [in_text[age] for age in starts],
                "AGEEND": [in_text[age] for age in ends],
                "SEX": [{"total": "", "male": "1", "female": "2"}[sex] for sex in sexes],
            },
        },
    )


TYPES = ("1", "2", "3", "4", "5")
"""Types of households: a married couple, a family of a man, of a woman, alone, not alone."""
TENURES = ("1", "2", "3")
"""Owned with a mortgage or loan, owned free and clear, rented with or without payment."""

N_FINEST = len(TYPES) * len(TENURES)
"""Cells of a household: type by tenure, row-major."""


def _household_tabulation(
    name: str,
    what: str,
    names: tuple[str, ...],
    categories: Sequence[tuple[str, Collection[int]]],
    shown: Sequence[Sequence[int]],
    positions: np.ndarray,
) -> Tabulation:
    """Tables of households by type, or by tenure.

    `categories` have their types or tenures, by position, and are numbered by their codes. Every
    table has the codes `shown`: codes that contain no other shown one are measured, and the others
    are sums of these. `positions` are the type or tenure of each of the `N_FINEST` cells.
    """
    cell_of, rows = [], []
    members = [frozenset(own) for _, own in categories]
    for codes in shown:
        cells = [c for c in codes if not any(members[other] < members[c] for other in codes)]
        cell_of.append([next(i for i, c in enumerate(cells) if p in members[c]) for p in positions])
        parts = [[i for i, c in enumerate(cells) if members[c] <= members[row]] for row in codes]
        rows.append(
            np.array([(c, own[0], own[-1] + 1) for c, own in zip(codes, parts, strict=True)])
        )
    codes = range(len(categories))
    return Tabulation(
        name,
        what,
        "households",
        names,
        np.array(cell_of),
        tuple(rows),
        {"category_code": codes, "category": [title for title, _ in categories]},
        {name: {f"{name.upper()}_DATA_CELL": [str(code) for code in codes]}},
    )


SEX_BY_AGE = _sex_by_age()
"""Tables of persons: a total, or sex by 4, 9 or 23 ages."""
HOUSEHOLD_TYPES = _household_tabulation(
    "t3",
    "household type",
    ("T03001", "T03002", "T03003", "T03004"),
    (
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
TENURE = _household_tabulation(
    "t4",
    "tenure",
    ("T04001", "T04002"),
    (
        ("Total households", (0, 1, 2)),
        ("Owned with a mortgage or a loan", (0,)),
        ("Owned free and clear", (1,)),
        ("Renter occupied", (2,)),
    ),
    ((0,), (0, 1, 2, 3)),
    np.tile(np.arange(len(TENURES)), len(TYPES)),
)

TABULATIONS: Mapping[str, Tabulation] = {
    one.name: one for one in (SEX_BY_AGE, HOUSEHOLD_TYPES, TENURE)
}
"""All tabulations by name, in the order of release."""
HOUSEHOLD_TABULATIONS: Mapping[str, Tabulation] = {
    name: one for name, one in TABULATIONS.items() if not one.of_persons
}
"""Those of households."""
