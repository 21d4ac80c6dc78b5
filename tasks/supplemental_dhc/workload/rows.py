"""The rows of the published tables: sums of measured cells, and averages of two such sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LARGEST_AVERAGE = 10
"""Persons of a household, or of a family, on average at most."""


@dataclass(frozen=True)
class Cells:
    """Some cells of a measure, added up."""

    measure: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table, numbered as in production.

    counted : the cells that are added up.
    of : the households that their number is divided by; None in a table of counts.
    whole : the cells of which `counted` are some, and whose average lies between `smallest` and
        `LARGEST_AVERAGE`; the same as `counted` where the row is the whole.
    """

    table: str
    number: int
    label: str
    counted: Cells
    of: Cells | None = None
    whole: Cells | None = None
    smallest: int = 1

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that the row is made of."""
        return (
            (self.counted.measure,) if self.of is None else (self.counted.measure, self.of.measure)
        )


def _counts(table: str, cells: Sequence[tuple[str, Sequence[int]]]) -> Iterator[Row]:
    for number, (label, numbers) in enumerate(cells, start=1):
        yield Row(table, number, label, Cells(table, tuple(numbers)))


def _averages(
    table: str,
    numerator: str,
    denominator: str,
    cells: Sequence[tuple[str, Sequence[int], Sequence[int], Sequence[int]]],
    smallest: int = 1,
) -> Iterator[Row]:
    for number, (label, counted, whole, of) in enumerate(cells, start=1):
        parts = (Cells(numerator, tuple(counted)), Cells(denominator, tuple(of)))
        yield Row(table, number, label, *parts, Cells(numerator, tuple(whole)), smallest)


_AGES = (("total", (0, 1)), ("under 18", (0,)), ("18 and over", (1,)))
_FAMILIES = ("married couple", "cohabiting couple", "male householder", "female householder")
_CHILDREN = ("under 4", "4 and 5", "6 to 11", "12 to 17")


def _children() -> Iterator[tuple[str, Sequence[int]]]:
    yield "total", range(16)
    for place, family in enumerate(_FAMILIES):
        first = 4 * place
        yield family, range(first, first + 4)
        for age, name in enumerate(_CHILDREN):
            yield f"{family}: {name}", (first + age,)


ROWS: tuple[Row, ...] = (
    *_averages("PH1", "PH1_num", "PH1_denom", [(name, own, (0, 1), (0,)) for name, own in _AGES]),
    *_counts(
        "PH2",
        (
            ("total", range(8)),
            ("married couple", (0, 1)),
            ("opposite-sex married couple", (0,)),
            ("same-sex married couple", (1,)),
            ("cohabiting couple", (2, 3)),
            ("opposite-sex cohabiting couple", (2,)),
            ("same-sex cohabiting couple", (3,)),
            ("male householder, no spouse or partner", (4, 5)),
            ("male householder: living alone", (4,)),
            ("male householder: with others", (5,)),
            ("female householder, no spouse or partner", (6, 7)),
            ("female householder: living alone", (6,)),
            ("female householder: with others", (7,)),
        ),
    ),
    *_counts(
        "PH3",
        (
            ("total", range(7)),
            ("householder, spouse, partner or nonrelative", (0,)),
            ("own child", (1, 2, 3, 4)),
            ("own child: married couple", (1,)),
            ("own child: cohabiting couple", (2,)),
            ("own child: male householder", (3,)),
            ("own child: female householder", (4,)),
            ("other relative", (5, 6)),
            ("grandchild", (5,)),
            ("further relative", (6,)),
        ),
    ),
    *_counts("PH4", _AGES),
    *_averages(
        "PH5", "PH4", "PH5_denom", [(name, own, (0, 1), (0,)) for name, own in _AGES], smallest=2
    ),
    *_counts("PH6", tuple(_children())),
    *_counts(
        "PH7",
        (
            ("total", (0, 1, 2)),
            ("owned with a mortgage or a loan", (0,)),
            ("owned free and clear", (1,)),
            ("renter occupied", (2,)),
        ),
    ),
    *_averages(
        "PH8",
        "PH7",
        "PH8_denom",
        (
            ("total", (0, 1, 2), (0, 1, 2), (0, 1)),
            ("owner occupied", (0, 1), (0, 1), (0,)),
            ("renter occupied", (2,), (2,), (1,)),
        ),
    ),
)
"""All rows, table by table."""

TITLES: Mapping[str, str] = {
    "PH1": "average household size by age",
    "PH2": "population in households by type of household",
    "PH3": "population under 18 in households by relationship and type of household",
    "PH4": "population in families by age",
    "PH5": "average family size by age",
    "PH6": "own children under 18 by type of family and age",
    "PH7": "population in occupied housing units by tenure",
    "PH8": "average household size by tenure",
}
"""What the tables are of."""
