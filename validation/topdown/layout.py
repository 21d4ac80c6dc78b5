"""Layouts of microdata in plain facts: what each column must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .descriptions import ExpectedDescription


@dataclass(frozen=True)
class LayoutColumn:
    """A column of microdata, and what it must hold; one of the four is given.

    constant : the same text in every row. digits : characters of the block's geocode, end
    exclusive. is_number : the number of the row, from 0. attribute : the code of its level, of
    which `codes` has one for each; where two levels share a code, further columns tell them apart.
    """

    name: str
    constant: str | None = None
    digits: tuple[int, int] | None = None
    is_number: bool = False
    attribute: str | None = None
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The columns of a universe's microdata in their order.

    further : what the rows of further records, such as facilities, have in some columns.
    described : the columns behind the others that another universe tells.
    """

    columns: tuple[LayoutColumn, ...]
    further: Mapping[str, str] = field(default_factory=dict)
    described: ExpectedDescription | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        described = () if self.described is None else self.described.columns
        return [*(column.name for column in self.columns), *described]
