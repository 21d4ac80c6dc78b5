"""Recodes: from the codes of columns to the levels of attributes, as declared.

A recode is evaluated once for every distinct value of a column (see `tasks.tables.columns`), and
looked up for the rows. It is defined, that is not negative, exactly for the declared codes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property

import numpy as np

from ..tables.columns import CodedColumn, without_point
from .attribute_declarations import DATE_PARTS, AttributeDeclaration, CodeRange, Codes, RefusedCodes

UNKNOWN = -1
"""The level of a code that no level has."""

FIRST_REFUSED = -2
"""Level of records that the first of a recode's `refused` matches; one less for the next, and so
on."""

NO_AGE = "\0"
"""Age for an invalid date of birth."""

_MOST_DIGITS = 18


@dataclass(frozen=True)
class CodeSet:
    """Codes of a column: texts, "" for a blank, and ranges of whole numbers."""

    texts: frozenset[str]
    ranges: tuple[tuple[int, int], ...]
    rounds_down: bool = False
    """Whether a number with a fraction is in the range of its whole part."""

    @classmethod
    def of(cls, codes: Codes) -> CodeSet:
        """The declared codes; those of digits alone are texts, too."""
        ranges = tuple((c.first, c.last) for c in codes if isinstance(c, CodeRange))
        return cls(frozenset(c for c in codes if isinstance(c, str)), ranges)

    def holds(self, value: str | None) -> bool:
        """Whether a canonical text is one of the codes."""
        if (value or "") in self.texts:
            return True
        if value is not None and (whole := without_point(value)) != value:
            return self.holds(whole)
        number = whole_number(_without_fraction(value) if self.rounds_down else value)
        return number is not None and any(low <= number <= high for low, high in self.ranges)

    def overlaps(self, other: CodeSet) -> bool:
        """Whether some code is in both."""
        return (
            bool(self.texts & other.texts)
            or any(other.holds(text) for text in self.texts)
            or any(self.holds(text) for text in other.texts)
            or any(a <= d and c <= b for a, b in self.ranges for c, d in other.ranges)
        )


@dataclass(frozen=True)
class ListedCodes:
    """Cells that list codes: those with one of `wanted`, or those without any.

    `known` are all codes that a cell may list; None for any.
    """

    wanted: CodeSet
    known: CodeSet | None
    separator: str
    has_any: bool

    def holds(self, value: str | None) -> bool:
        """Whether a cell lists known codes alone, and is of the kind that is meant."""
        codes = [code.strip() for code in (value or "").split(self.separator)]
        codes = [code for code in codes if code]
        if self.known is not None and not all(map(self.known.holds, codes)):
            return False
        return any(map(self.wanted.holds, codes)) == self.has_any


Condition = CodeSet | ListedCodes
"""Condition on a column for a level."""


@dataclass(frozen=True)
class Reading:
    """Preparation of a cell before codes are looked up in it: a blank, where it is missing, or an
    age.

    day : the day on which ages count, for a column of dates of birth; None for any other.
    form : format of its dates.
    """

    missing: CodeSet
    day: date | None
    form: str

    def text(self, value: str | None) -> str | None:
        """The text that codes are looked up in; None for a blank."""
        if value is None or self.missing.holds(value):
            return None
        return value if self.day is None else age_in_years(value, self.day, date_pattern(self.form))


@dataclass(frozen=True)
class Recode:
    """Definition of an attribute: `rules` of levels and the codes that columns must have for them.

    The first matching rule gives the level of a record; `refused` combinations, with levels from
    `FIRST_REFUSED` down, precede all others. A recode of one column may have a reading of its
    cells.
    """

    attribute: str
    levels: tuple[str, ...]
    rules: tuple[tuple[int, Mapping[str, Condition]], ...]
    reading: Reading | None = None
    refused: tuple[RefusedCodes, ...] = ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that the recode reads, each once."""
        return tuple(dict.fromkeys(name for _, where in self.rules for name in where))

    def level_of(self, value: str | None) -> int:
        """Level of one value of a recode of one column; negative where no level has it."""
        text = value if self.reading is None else self.reading.text(value)
        for level, where in self.rules:
            if all(codes.holds(text) for codes in where.values()):
                return level
        return UNKNOWN

    def evaluate(self, columns: Mapping[str, CodedColumn], n_rows: int) -> np.ndarray:
        """Level of every row, shape `(n_rows,)`, int16 or, of more levels, int32; -1 where no level
        fits, and less where the codes are refused.

        Rules without columns take no number that is a declared code but for leading zeros: a table
        that was saved without them would be of that level throughout."""
        names = self.columns
        dtype = np.int16 if len(self.levels) <= np.iinfo(np.int16).max else np.int32
        if len(names) == 1 and all(where for _, where in self.rules):
            return columns[names[0]].lookup(self.level_of, dtype)
        level = np.full(n_rows, UNKNOWN, dtype=dtype)
        is_open = np.ones(n_rows, dtype=bool)
        asked, numbered = self._conditions
        holds = [columns[name].lookup(codes.holds, bool) for name, codes in asked]
        for number, conditions in numbered:
            fits = is_open.copy()
            for condition in conditions:
                fits &= holds[condition]
            if not conditions:
                for name in names:
                    fits &= ~columns[name].lookup(self._lacks_zeros(name), bool)
            level[fits] = number
            is_open &= ~fits
        return level

    def _lacks_zeros(self, column: str) -> Callable[[str | None], bool]:
        """Whether a number is not among a column's declared codes, but would be with leading
        zeros."""
        codes = [where[column] for _, where in self.rules if column in where]
        texts = {text for one in codes if isinstance(one, CodeSet) for text in one.texts}
        numbers = {whole_number(text) for text in texts} - {None}

        def lacks_zeros(value: str | None) -> bool:
            return whole_number(value) in numbers and not any(one.holds(value) for one in codes)

        return lacks_zeros

    @cached_property
    def _conditions(self) -> tuple[list[tuple[str, Condition]], list[tuple[int, list[int]]]]:
        """Distinct conditions of the rules on a column, and the level of every rule with the
        numbers of its conditions."""
        number: dict[tuple[str, Condition], int] = {}
        numbered = [
            (level, [number.setdefault(condition, len(number)) for condition in where.items()])
            for level, where in self.rules
        ]
        return list(number), numbered


def whole_number(value: str | None) -> int | None:
    """The whole number that a text spells in ASCII digits, also `1.0`; None for any other."""
    value = without_point(value or "")
    if not 0 < len(value) <= _MOST_DIGITS:
        return None
    return int(value) if value.isascii() and value.isdigit() else None


def _without_fraction(value: str | None) -> str | None:
    """A decimal number without its fraction; any other text unchanged."""
    whole, point, fraction = (value or "").partition(".")
    return whole if point and fraction.isascii() and fraction.isdigit() else value


def age_in_years(born: str, day: date, pattern: str) -> str:
    """Age in whole years on a day, from a date of birth; `NO_AGE`, which is no code of a level, for
    invalid dates and for births after that day.

    A person born on 29 February is a year older on 1 March of years without that day. A time of day
    after the date is of no interest.

    >>> age_in_years("1990-06-15", date(2021, 6, 14), date_pattern("YYYY-MM-DD"))
    '30'
    """
    found = re.match(pattern, born, re.ASCII)
    if found is None:
        return NO_AGE
    year, month, of_month = (int(found[part]) for part in DATE_PARTS)
    try:
        date(year, month, of_month)
    except ValueError:
        return NO_AGE
    age = day.year - year - ((day.month, day.day) < (month, of_month))
    return str(age) if age >= 0 else NO_AGE


@cache
def date_pattern(date_format: str) -> str:
    """The regular expression of dates of a format such as `DD.MM.YYYY`."""
    pattern = re.escape(date_format)
    for part in DATE_PARTS:
        digits = r"\d{4}" if part == "YYYY" else r"\d{2}"
        pattern = pattern.replace(part, f"(?P<{part}>{digits})")
    return pattern + r"(?![\d])"


def compiled_recode(
    name: str, declared: AttributeDeclaration, *, rounds_down: bool = True
) -> Recode:
    """The recode of a declared attribute; bins round fractions down, or refuse them.

    Raises ValueError for two levels of one label, or that share a code.
    """
    if declared.rules is not None:
        labels = tuple(dict.fromkeys(rule.level for rule in declared.rules))
        refused = declared.refused or ()
        entries = [(FIRST_REFUSED - number, entry.where) for number, entry in enumerate(refused)]
        entries += [(labels.index(rule.level), rule.where) for rule in declared.rules]
        rules = tuple(
            (level, {column: CodeSet.of(codes) for column, codes in where.items()})
            for level, where in entries
        )
        return Recode(name, labels, rules, refused=refused)
    if declared.column is None:
        raise ValueError(f"attribute {name!r} has no column")
    labels, conditions = _conditions(name, declared, rounds_down)
    cases: list[tuple[int, Condition]] = list(enumerate(conditions))
    if declared.blank is not None:
        labels, blank = (*labels, declared.blank), CodeSet(frozenset({""}), ())
        if any(isinstance(c, CodeSet) and c.holds(None) for c in conditions):
            raise ValueError(
                f"attribute {name!r} has a level with blanks although blank is set; keep one"
            )
        # Precede those that would treat a blank as a list without codes.
        cases.insert(0, (len(labels) - 1, blank))
    if len(set(labels)) < len(labels):
        raise ValueError(f"attribute {name!r} gives two levels one label")
    column = declared.column
    recodes = tuple((level, {column: condition}) for level, condition in cases)
    return Recode(name, labels, recodes, _reading(declared))


def _reading(declared: AttributeDeclaration) -> Reading | None:
    """Return the reading of cells of an attribute's column, where they are not plain codes."""
    if declared.missing is None and declared.age_at is None:
        return None
    form = declared.date_format or "YYYY-MM-DD"
    return Reading(CodeSet.of(declared.missing or ()), declared.age_at, form)


def _conditions(
    name: str, declared: AttributeDeclaration, rounds_down: bool
) -> tuple[tuple[str, ...], list[Condition]]:
    """Labels of the levels of a column, and the condition for each."""
    if declared.contains is not None and declared.separator is not None:
        wanted = CodeSet.of(declared.contains)
        known = None
        if declared.among is not None:
            known = CodeSet.of((*declared.contains, *declared.among))
        return declared.labels or ("no", "yes"), [
            ListedCodes(wanted, known, declared.separator, has_any) for has_any in (False, True)
        ]
    if declared.levels is not None:
        labels = tuple(declared.levels)
        sets = [CodeSet.of(codes) for codes in declared.levels.values()]
        for i, first in enumerate(sets):
            for j in range(i + 1, len(sets)):
                if first.overlaps(sets[j]):
                    raise ValueError(
                        f"attribute {name!r}: levels {labels[i]!r} and {labels[j]!r} share a code"
                    )
        return labels, [*sets]
    if declared.numbers is not None:
        least, most = declared.numbers
        numbers = range(least, most + 1)
        return tuple(map(str, numbers)), [CodeSet(frozenset(), ((n, n),)) for n in numbers]
    if declared.bins is not None and declared.largest is not None:
        ends = [*(start - 1 for start in declared.bins[1:]), declared.largest]
        pairs = list(zip(declared.bins, ends, strict=True))
        labels = declared.labels or tuple(f"{a}-{b}" if b > a else str(a) for a, b in pairs)
        return labels, [CodeSet(frozenset(), (pair,), rounds_down) for pair in pairs]
    raise ValueError(f"attribute {name!r} has neither levels, numbers, bins nor contains")
