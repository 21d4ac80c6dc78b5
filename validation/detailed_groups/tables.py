"""The tables that a group can receive, as the technical documents list them, and their rows.

A table is measured by counts in a fixed order; each of its rows shows the sum of some consecutive
ones. Persons have a total, or sex by age in 4, 9 or 23 bins; households have a type or a tenure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..run_files import positions

TOTAL = 0
"""Code of the row that is the sum of all counts of a table."""
OLDEST_AGE = 115
AGE_BINS: dict[int, tuple[int, ...]] = {
    1: (0, 18, 45, 65),
    2: (0, 5, 18, 25, 35, 45, 55, 65, 75),
    3: (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""First age of each bin, by the number of the table; the last bin ends with `OLDEST_AGE`."""

Rows = Mapping[int, tuple[int, int]]
"""By the code of a row, the first of the counts that it sums, and the end of these."""


@dataclass(frozen=True, eq=False)
class Tabulation:
    """Tables of one kind, from a total to the finest.

    key : name of its budgets and thresholds in `config.json`.
    universe : name in the plan.
    folder : of the measurements.
    tables : the names, and `rows` of each.
    codes : the code of a row by its labels, separated by blanks; "*" is for all ages.
    texts : the released text files, with the columns of labels.
    tidy, labels : the released Parquet file, and its columns of labels.
    """

    key: str
    universe: str
    folder: str
    tables: tuple[str, ...]
    rows: tuple[Rows, ...]
    codes: Mapping[str, int]
    texts: Mapping[str, tuple[str, ...]]
    tidy: str
    labels: tuple[str, ...]

    @cached_property
    def n_cells(self) -> np.ndarray:
        """Counts of every table, shape (n_tables,)."""
        return np.array([own[TOTAL][1] for own in self.rows])

    @cached_property
    def bounds(self) -> np.ndarray:
        """First and end of the counts in each row, shape (n_tables, n_codes + 1, 2), -1 for no row;
        the last, also at -1, is of no code."""
        found = np.full((len(self.rows), 2 + max(map(max, self.rows)), 2), -1)
        for number, own in enumerate(self.rows):
            for code, row in own.items():
                found[number, code] = row
        return found


def _bins(starts: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last age of each bin."""
    return list(zip(starts, [*(first - 1 for first in starts[1:]), OLDEST_AGE], strict=True))


_SEXES = {"total": 0, "1": 1, "2": 2, "male": 1, "female": 2}
_RANGES = sorted({ages for starts in AGE_BINS.values() for ages in _bins(starts)})
_OF_SEX = 1 + len(_RANGES)
"""Codes of a sex: its marginal, then each range of ages."""


def _sex_by_age(starts: tuple[int, ...]) -> Rows:
    bins, own = _bins(starts), {TOTAL: (0, 2 * len(starts))}
    for sex in (1, 2):
        first = (sex - 1) * len(bins)
        own[sex * _OF_SEX] = first, first + len(bins)
        for place, ages in enumerate(bins, first):
            own[sex * _OF_SEX + 1 + _RANGES.index(ages)] = place, place + 1
    return own


PERSONS = Tabulation(
    "p",
    "population groups",
    "detailed_groups",
    ("T01001", "T02001", "T02002", "T02003"),
    ({TOTAL: (0, 1)}, *map(_sex_by_age, AGE_BINS.values())),
    {
        f"{start} {end} {name}": sex * _OF_SEX + number
        for name, sex in _SEXES.items()
        for number, (start, end) in enumerate([("*", "*"), *_RANGES])
    },
    {"t1.csv": (), "t2.csv": ("AGESTART", "AGEEND", "SEX")},
    "population_groups.parquet",
    ("age_start", "age_end", "sex"),
)
TYPES = Tabulation(
    "h_t3",
    "household type",
    "detailed_households/t3",
    ("T03001", "T03002", "T03003", "T03004"),
    (
        {0: (0, 1)},
        {0: (0, 2), 1: (0, 1), 6: (1, 2)},
        {0: (0, 4), 1: (0, 2), 2: (0, 1), 3: (1, 2), 6: (2, 4), 7: (2, 3), 8: (3, 4)},
        {
            0: (0, 5),
            1: (0, 3),
            2: (0, 1),
            3: (1, 3),
            4: (1, 2),
            5: (2, 3),
            6: (3, 5),
            7: (3, 4),
            8: (4, 5),
        },
    ),
    {str(code): code for code in range(9)},
    {"t3.csv": ("T3_DATA_CELL",)},
    "detailed_households.parquet",
    ("category_code",),
)
"""Codes: 0 all, 1 families, 2 married couples, 3 other families, 4 of a man, 5 of a woman, 6
nonfamilies, 7 alone, 8 not alone."""
TENURES = Tabulation(
    "h_t4",
    "tenure",
    "detailed_households/t4",
    ("T04001", "T04002"),
    ({0: (0, 1)}, {0: (0, 3), 1: (0, 1), 2: (1, 2), 3: (2, 3)}),
    {str(code): code for code in range(4)},
    {"t4.csv": ("T4_DATA_CELL",)},
    "detailed_households.parquet",
    ("category_code",),
)
"""Codes: 0 all, 1 with a mortgage, 2 free and clear, 3 rented."""


def row_codes(batch: pa.RecordBatch, labels: Sequence[str], tabulation: Tabulation) -> np.ndarray:
    """The code of each row by its columns of labels, TOTAL without any and -1 for labels of no
    table; shape (n,), int64."""
    if not labels:
        return np.full(batch.num_rows, TOTAL, dtype=np.int64)
    texts = (pc.fill_null(batch[name].cast(pa.string()), "*") for name in labels)
    return look_up_texts(pc.binary_join_element_wise(*texts, " "), tabulation.codes)


def look_up_texts(column: pa.Array, known: Mapping[str, int]) -> np.ndarray:
    """The number of each text of a column, -1 for none."""
    return np.array([*known.values(), -1])[positions(column, pa.array(list(known), pa.string()))]
