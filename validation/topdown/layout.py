"""Layouts of microdata in plain facts: what each column must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class ExpectedDescription:
    """Columns that tell more of records, by another universe that is matched with them.

    row : (n_cells,) the answer of `query`, of the other universe, that each cell's records are
    matched in, -1 for none. columns : by name, a query of the other universe, and the code of each
    of its answers. otherwise : the codes of records that are matched with none.
    """

    universe: str
    query: str
    row: np.ndarray
    columns: Mapping[str, tuple[str, Sequence[str]]]
    otherwise: Mapping[str, str]


@dataclass(frozen=True)
class LayoutColumn:
    """A column of microdata, and what it must hold; one of the five is given.

    constant : the same text in every row. digits : characters of the block's geocode, end
    exclusive. geolevel : the code of the area's geounit of a declared geolevel. is_number : the
    number of the row, from 0. attribute : the code of its level, of which `codes` has one for each;
    where two levels share a code, further columns tell them apart.
    """

    name: str
    constant: str | None = None
    digits: tuple[int, int] | None = None
    geolevel: str | None = None
    is_number: bool = False
    attribute: str | None = None
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The columns of a universe's microdata in their order.

    further : what the rows of further records, such as facilities, have in some columns.
    described : the columns behind the others that another universe tells. count : the last column,
    which says how many records a row stands for; None for one. has_quotes : whether texts may stand
    between quotes.
    """

    columns: tuple[LayoutColumn, ...]
    further: Mapping[str, str] = field(default_factory=dict)
    described: ExpectedDescription | None = None
    count: str | None = None
    has_quotes: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        described = () if self.described is None else self.described.columns
        counted = () if self.count is None else (self.count,)
        return [*(column.name for column in self.columns), *described, *counted]
