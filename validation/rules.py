"""Rules on the input of a run, and the number of rows that break one.

Every rule is a statement about the distinct values of one column of *evidence*: a column of the
table itself, in canonical text or as a whole number, or a yes/no column derived from several
columns or tables. A rule of this kind holds for all rows if and only if it holds for all distinct
values, so it can be evaluated on a table's distinct values, however many rows there are.
`count_violations` evaluates a rule here, with (confidential) row counts; `validation.expectations`
turns the same rules into Great Expectations suites for the public outcome. Each product declares
the rules on its input in its `input_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | bool | None
Evidence = Mapping[str, Mapping[str, Mapping[Value, int]]]
"""Suite -> evidence column -> distinct value -> number of rows with it. None is blank."""


@dataclass(frozen=True)
class Rule:
    """A rule about the distinct values of one evidence column.

    `statement` is a clause with "must", which names no value of a record; `remedy` is an
    imperative. A value passes if it is in `allowed`, fully matches `pattern`, or is a number from
    the first to the second of `between`, None for no end; a blank (None) passes if `may_be_blank`.
    `suite` is its suite of expectations, `table` the input table whose file a message names,
    `column` the column it names.
    """

    name: str
    suite: str
    table: str
    column: str
    evidence: str
    statement: str
    remedy: str
    allowed: tuple[Value, ...] | None = None
    pattern: str | None = None
    between: tuple[int | None, int | None] | None = None
    may_be_blank: bool = False

    def is_met_by(self, value: Value) -> bool:
        """Whether one distinct value of the evidence column passes."""
        if value is None:
            return self.may_be_blank
        if self.allowed is not None:
            return value in self.allowed
        if self.between is not None:
            low, high = self.between
            if isinstance(value, str):
                return False
            return (low is None or low <= value) and (high is None or value <= high)
        if self.pattern is None or not isinstance(value, str):
            return False
        return re.fullmatch(self.pattern, value) is not None


def count_violations(rule: Rule, evidence: Evidence) -> int:
    """Number of rows that break a rule; confidential."""
    rows_of = evidence[rule.suite][rule.evidence]
    return sum(rows for value, rows in rows_of.items() if not rule.is_met_by(value))
