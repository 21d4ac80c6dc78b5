"""Recodes: from the codes of columns to the levels of attributes, as declared.

A recode is evaluated once for every distinct value of a column (see `tasks.tables.columns`), and
looked up for the rows. It is defined, that is not negative, exactly for the declared codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..tables.columns import CodedColumn
from .declarations import AttributeDeclaration, CodeRange, Codes

UNKNOWN = -1
"""The level of a code that no level has."""

_MOST_DIGITS = 18


@dataclass(frozen=True)
class CodeSet:
    """Codes of a column: texts, "" for a blank, and ranges of whole numbers."""

    texts: frozenset[str]
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, codes: Codes) -> CodeSet:
        """The declared codes; those made of digits alone are texts, too."""
        ranges = tuple((c.first, c.last) for c in codes if isinstance(c, CodeRange))
        return cls(frozenset(c for c in codes if isinstance(c, str)), ranges)

    def holds(self, value: str | None) -> bool:
        """Whether a canonical text is one of the codes."""
        if (value or "") in self.texts:
            return True
        number = whole_number(value)
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
class Recode:
    """How an attribute is told: `rules` of levels and the codes that columns must have for them.

    The first rule that fits tells the level of a record.
    """

    attribute: str
    levels: tuple[str, ...]
    rules: tuple[tuple[int, Mapping[str, CodeSet]], ...]
    _level_of: dict[str | None, int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Levels of values that were asked for, since every batch of a table asks for the same."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the recode reads, each once."""
        return tuple(dict.fromkeys(name for _, where in self.rules for name in where))

    def level_of(self, value: str | None) -> int:
        """Level of one value of a recode of one column; -1 where no level has it."""
        known = self._level_of.get(value)
        if known is not None:
            return known
        for level, where in self.rules:
            if all(codes.holds(value) for codes in where.values()):
                self._level_of[value] = level
                return level
        return UNKNOWN

    def evaluate(self, columns: Mapping[str, CodedColumn], n_rows: int) -> np.ndarray:
        """Level of every row, shape `(n_rows,)`, int16; -1 where no level fits."""
        names = self.columns
        if len(names) == 1 and all(where for _, where in self.rules):
            return columns[names[0]].lookup(self.level_of, np.int16)
        level = np.full(n_rows, UNKNOWN, dtype=np.int16)
        is_open = np.ones(n_rows, dtype=bool)
        for number, where in self.rules:
            fits = is_open.copy()
            for name, codes in where.items():
                fits &= columns[name].lookup(codes.holds, bool)
            level[fits] = number
            is_open &= ~fits
        return level


def whole_number(value: str | None) -> int | None:
    """The whole number that a text spells in ASCII digits; None for any other text."""
    if value is None or not 0 < len(value) <= _MOST_DIGITS:
        return None
    return int(value) if value.isascii() and value.isdigit() else None


def compiled_recode(name: str, declared: AttributeDeclaration) -> Recode:
    """The recode of a declared attribute.

    Raises ValueError for two levels of one label, or that share a code.
    """
    if declared.rules is not None:
        labels = tuple(dict.fromkeys(rule.level for rule in declared.rules))
        rules = tuple(
            (
                labels.index(rule.level),
                {column: CodeSet.of(codes) for column, codes in rule.where.items()},
            )
            for rule in declared.rules
        )
        return Recode(name, labels, rules)
    if declared.levels is not None:
        labels = tuple(declared.levels)
        sets = [CodeSet.of(codes) for codes in declared.levels.values()]
        for i, first in enumerate(sets):
            for j in range(i + 1, len(sets)):
                if first.overlaps(sets[j]):
                    raise ValueError(
                        f"attribute {name!r}: levels {labels[i]!r} and {labels[j]!r} share a code"
                    )
    elif declared.numbers is not None:
        least, most = declared.numbers
        labels = tuple(str(number) for number in range(least, most + 1))
        sets = [CodeSet(frozenset(), ((n, n),)) for n in range(least, most + 1)]
    elif declared.bins is not None and declared.largest is not None:
        ends = [*(start - 1 for start in declared.bins[1:]), declared.largest]
        pairs = list(zip(declared.bins, ends, strict=True))
        labels = declared.labels or tuple(f"{a}-{b}" if b > a else str(a) for a, b in pairs)
        sets = [CodeSet(frozenset(), (pair,)) for pair in pairs]
    else:
        raise ValueError(f"attribute {name!r} has neither levels, numbers nor bins")
    if declared.column is None:
        raise ValueError(f"attribute {name!r} has no column")
    if len(set(labels)) < len(labels):
        raise ValueError(f"attribute {name!r} gives two levels one label")
    column = declared.column
    rules = tuple((level, {column: codes}) for level, codes in enumerate(sets))
    return Recode(name, labels, rules)
