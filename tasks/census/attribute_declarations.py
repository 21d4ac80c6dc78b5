"""The parts of the language of declarations for attributes: files, codes, attributes.

They also declare how records agree with those of an earlier universe of the run.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from ..runs.names import FileName, Label
from ..runs.settings import ExactTypes
from ..tables.formats import GridCells, checked_encoding

OTHER = "other"
"""Stands for the tables that are not named."""


def _as_list(value: Any) -> Any:
    """A single value as a list."""
    return value if isinstance(value, list | tuple) else (value,)


class Part(ExactTypes):
    """A table of a declaration."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._refuse_misfits()
        return self

    def _refuse_misfits(self) -> None:
        """Raise ValueError where keys do not fit each other."""


class CodeRange(Part):
    """Whole numbers from one to another, both included."""

    first: int = Field(alias="from")
    """First number; written `from`."""
    last: int = Field(alias="to")
    """Last number; written `to`."""

    def _refuse_misfits(self) -> None:
        if self.first > self.last:
            raise ValueError(f"runs from {self.first} down to {self.last}; swap them")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


Codes = Annotated[tuple[str | CodeRange, ...], BeforeValidator(_as_list)]
"""Codes of a column; "" is a blank. A single one needs no list."""

Levels = Annotated[tuple[str | int | CodeRange, ...], BeforeValidator(_as_list)]
"""Levels by their labels or positions. A range, also as "0-14", selects the labels that are
numbers, or ranges of numbers, within it; a pattern such as "couple; *" selects the labels that
fit. A single one needs no list."""

Where = dict[str, Levels]
"""Levels that attributes or coarsenings may take; others may take any."""


class FilesDeclaration(Part):
    """Format of the files of a table, as far as it is not recognised; `other` is for all tables
    that are not named."""

    separator: str | None = Field(default=None, min_length=1, max_length=1)
    """Separator of the fields of a row; left out, the pipes, commas, tabs or semicolons of the
    header."""
    decimal: Literal[",", "."] | None = None
    """Decimal mark of numbers; if omitted, a comma between semicolons, and else a point."""
    encoding: Annotated[str, AfterValidator(checked_encoding)] | None = None
    """Encoding of texts, such as `latin-1` or `windows-1250`; if omitted, UTF-8, or UTF-16 with a
    byte order mark."""
    missing: Codes | None = None
    """Codes of a blank in every column, such as `["NA", "-9"]`; in identifiers, ranges do not
    apply."""
    digits: dict[str, Annotated[int, Field(ge=2, le=18)]] = {}
    """Digits of the codes of columns, such as `{ role = 2 }`, whose leading zeros a spreadsheet may
    have taken away: 1 is then read as 01. Declarations have all digits of such a code."""
    cells: dict[str, GridCells] = {}
    """Columns of grid cells from coordinates, such as `{ cell = { x = "E", y = "N", size = 1000 }
    }`, usable like any column of the table. A row whose coordinates are blank or no numbers has
    no cell."""
    columns: dict[str, tuple[int, int]] | None = Field(default=None, min_length=1)
    """Places of columns in the lines of a text of fixed width without a header: the first character
    of each, counted from 0, and the one after its last. The text must be ASCII."""
    line_length: int | None = Field(default=None, ge=1)
    """Characters of each such line; if omitted, up to the end of the last column."""

    def _refuse_misfits(self) -> None:
        if self.columns is None:
            if self.line_length is not None:
                raise ValueError("has line_length, which does nothing without columns; remove it")
            return
        if self.separator is not None:
            raise ValueError("places columns in lines, so that separator does nothing; remove it")
        for name, (start, end) in self.columns.items():
            if not 0 <= start < end:
                raise ValueError(
                    f"places the column {name} from {start} to {end}; give its first character, "
                    "counted from 0, and the one after its last"
                )
            if self.line_length is not None and end > self.line_length:
                raise ValueError(
                    f"places the column {name} beyond the {self.line_length} characters of a line"
                )


DATE_PARTS = ("YYYY", "MM", "DD")
"""Letters of a date in `date_format`."""


class LevelRule(Part):
    """A level, and the codes that columns must have for it; without columns, all rows fit."""

    level: str
    """Label of the level; several rules may lead to one."""
    where: dict[str, Codes] = {}
    """By column of the universe's table, `table.column` of one that `through` leads to, or
    `<name>.column` of occupants."""


class RefusedCodes(Part):
    """Codes that columns may not have together; a record with them is refused, regardless of its
    level by the rules."""

    where: dict[str, Codes] = Field(min_length=1)
    """By column, as in `rules`."""
    statement: str
    """The requirement, as a clause with "must" that names no value of a record."""
    remedy: str
    """The remedy, as an imperative."""


class AttributeDeclaration(Part):
    """A classification of the records of a table: one column recoded, or rules over several."""

    column: str | None = None
    """Column of the universe's table, `table.column` of one that `through` leads to, or
    `<name>.column` of occupants."""
    levels: dict[str, Codes] | None = None
    """Codes of every level, by its label."""
    numbers: tuple[int, int] | None = None
    """One level for each whole number, from the first to the last."""
    bins: tuple[int, ...] | None = None
    """Smallest number of every level; level i ends before bins[i + 1]. Fractions are rounded
    down."""
    largest: int | None = None
    """Largest number of the last bin."""
    labels: tuple[str, ...] | None = None
    """Labels of the bins, by default their ranges, such as 5-14."""
    missing: Codes | None = None
    """Codes of a blank in the column, in addition to its table's."""
    blank: str | None = None
    """Label of a further level, the last, for blanks; if omitted, a blank is refused unless
    `levels` or `rules` have it."""
    age_at: date | None = None
    """A day, such as the census day: the column holds dates of birth, and codes, numbers and bins
    are of the ages in whole years on that day."""
    date_format: str | None = None
    """How those dates are written, such as `DD.MM.YYYY`; by default `YYYY-MM-DD`."""
    rules: tuple[LevelRule, ...] | None = None
    """The first rule that fits decides the level of a record."""
    refused: tuple[RefusedCodes, ...] | None = None
    """With `rules`: combinations of codes that are refused with sentences of their own."""

    @field_validator("age_at", mode="before")
    @classmethod
    def _is_a_day(cls, value: Any) -> Any:
        found = value
        if isinstance(value, str):
            with suppress(ValueError):
                found = date.fromisoformat(value)
        if found is not None and type(found) is not date:
            raise ValueError("must be a day, such as 2021-03-21")
        return found

    @field_validator("date_format")
    @classmethod
    def _names_day_month_and_year(cls, value: str | None) -> str | None:
        if value is not None and any(len(re.findall(p, value)) != 1 for p in DATE_PARTS):
            raise ValueError("needs YYYY, MM and DD once each, as in 'DD.MM.YYYY'")
        return value

    def _refuse_misfits(self) -> None:
        kinds = ("levels", "numbers", "bins", "rules")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("needs one of levels, numbers, bins and rules")
        if (self.column is None) != (given == ["rules"]):
            raise ValueError("needs a column, or rules, which name their own columns")
        self._refuse_idle_keys(given[0])
        if self.bins is not None:
            edges = (*self.bins, (self.largest if self.largest is not None else -1) + 1)
            if self.largest is None or list(edges) != sorted(set(edges)) or self.bins[0] < 0:
                raise ValueError("needs bins that ascend from 0 or more, and largest after them")
            if self.labels is not None and len(self.labels) != len(self.bins):
                raise ValueError("needs as many labels as bins")
        if self.numbers is not None and not 0 <= self.numbers[0] <= self.numbers[1]:
            raise ValueError("needs numbers that ascend from 0 or more")

    def _refuse_idle_keys(self, kind: str) -> None:
        """Refuse keys that have no meaning for this kind of recode."""
        needs = {
            "largest": (kind == "bins", "bins have"),
            "labels": (kind == "bins", "bins have"),
            "missing": (kind != "rules", "a single column has"),
            "blank": (kind != "rules", "a single column has"),
            "refused": (kind == "rules", "rules have"),
            "age_at": (kind in ("levels", "numbers", "bins"), "levels, numbers and bins have"),
            "date_format": (self.age_at is not None, "age_at has"),
        }
        for name, (has_meaning, owner) in needs.items():
            if getattr(self, name) is not None and not has_meaning:
                raise ValueError(f"has {name}, which only {owner}")


class CoarseningDeclaration(Part):
    """A partition of an attribute's levels, usable wherever the attribute is."""

    attribute: str
    """Attribute whose levels are merged."""
    levels: dict[str, Codes] = Field(min_length=1)
    """Labels of the attribute's levels, each once, by the label of the coarse level. A range,
    also as "0-14", selects the labels that are numbers, or ranges of numbers, within it; a
    pattern such as "couple; *" selects the labels that fit. A level's own label has precedence,
    then the longest pattern. One list may be empty, for the rest."""


PRESENCE, HOUSEHOLDERS, SIZES = "presence", "householders", "sizes"
ACCOMPANIED = "accompanied"


class AgreeDeclaration(Part):
    """Records that agree with the released ones of an earlier universe in every area. Followed with
    `run.coherent`.

    `presence`: at most one for each of the others, and none of the others without one, as occupied
    units with persons. `householders`: as many as the others by every answer to the query, as
    householders and occupied dwellings. `sizes`: as many as fit into the others by their size, as
    persons in households and dwellings. `accompanied`: at most so many for each other record of the
    same universe, and so none without one, as minors with an adult.
    """

    name: Label
    """Name in files, reports and messages."""
    kind: Literal["presence", "householders", "sizes", "accompanied"] = "presence"
    """`presence`, `householders`, `sizes` or `accompanied`."""
    query: str = "total"
    """For `presence`, the query that separates the records from the others of the universe. For
    `householders`, attributes of both universes with the same levels, such as the householder's
    sex."""
    where: Where = {}
    """The records that agree: of `presence`, some of the answers to the query; by default
    all."""
    universe: FileName
    """The earlier universe of the run; for `accompanied`, the same universe."""
    of: Where = {}
    """Its counted records; by default all. For `sizes`, the others have no people."""
    at_most: int | None = Field(default=None, ge=1)
    """For `presence`, most of its records for each record here, which a bound of that universe
    enforces. For `accompanied`, most records for each of those `of` the companions."""
    called: dict[str, str] = {}
    """For `householders`, differing names of attributes and coarsenings of the query in that
    universe, such as `{ sex = "sex_of_householder" }`."""
    size: str | None = None
    """For `sizes`, the attribute or coarsening of that universe with the size of its records."""
    people: dict[str, tuple[int, int]] = {}
    """For `sizes`, the least and the most records here for one there of each size; one number
    where they are equal."""

    @field_validator("people", mode="before")
    @classmethod
    def _one_number_is_both(cls, people: object) -> object:
        if not isinstance(people, dict):
            return people
        return {
            size: (number, number) if isinstance(number, int) else number
            for size, number in people.items()
        }

    def _refuse_misfits(self) -> None:
        given = {
            "at_most": self.at_most is not None,
            "size": self.size is not None,
            "people": bool(self.people),
        }
        needed = {
            PRESENCE: {"at_most"},
            HOUSEHOLDERS: set(),
            SIZES: {"size", "people"},
            ACCOMPANIED: {"at_most"},
        }[self.kind]
        for key, is_given in given.items():
            if is_given and key not in needed:
                raise ValueError(f"{key} does nothing where kind is {self.kind!r}; take it out")
            if not is_given and key in needed:
                raise ValueError(f"kind {self.kind!r} needs {key}")
        if self.called and self.kind != HOUSEHOLDERS:
            raise ValueError(f"called does nothing where kind is {self.kind!r}; take it out")
        if self.kind in (SIZES, ACCOMPANIED) and self.query != "total":
            raise ValueError(f"query does nothing where kind is {self.kind!r}; take it out")
        for size, (least, most) in self.people.items():
            if not 0 <= least <= most:
                raise ValueError(
                    f"people of {size!r} are at least {least} and at most {most}; give two numbers "
                    "from 0 on, the smaller first"
                )

    @property
    def most(self) -> int:
        """`at_most` of `presence` and `accompanied`, which always have it."""
        assert self.at_most is not None
        return self.at_most
