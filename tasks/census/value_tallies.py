"""Evidence: rows per distinct value of the columns that the rules on an input are checked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ...validation.expectations import run_suites
from ...validation.outcome import Outcome
from ...validation.rules import Rule, Value, count_violations
from ..tables.copies import FilesRead
from ..tables.findings import Finding, InputCheck
from ..tables.sources import InputFile

Accepted = TypeVar("Accepted")


@dataclass
class ValueTally:
    """Rows per distinct value of every evidence column, by suite, summed over batches.

    For a table in several files it also has the first file with each value.
    """

    suites: dict[str, dict[str, dict[Value, int]]] = field(default_factory=dict)
    _first_file: dict[tuple[str, str, Value], int] = field(default_factory=dict)
    files: FilesRead = field(default_factory=FilesRead)

    def add(self, suite: str, column: str, counts: Mapping[Value, int], *, file: int = 0) -> None:
        """Add the rows of some distinct values, of the table's file at this position."""
        total = self.suites.setdefault(suite, {}).setdefault(column, {})
        for value, rows in counts.items():
            total[value] = total.get(value, 0) + rows
            where = suite, column, value
            self._first_file[where] = min(file, self._first_file.get(where, file))

    def add_mask(self, suite: str, column: str, mask: np.ndarray, *, file: int = 0) -> None:
        """Add the rows of a yes/no column."""
        true = int(np.count_nonzero(mask))
        counts = {True: true, False: len(mask) - true}
        given: dict[Value, int] = {value: rows for value, rows in counts.items() if rows}
        self.add(suite, column, given, file=file)

    def add_masks(self, suite: str, column: str, mask: np.ndarray, rows: np.ndarray) -> None:
        """Add a yes/no column of files one after the other, `rows` (n_files,) of each."""
        end = 0
        for file, n_rows in enumerate(rows):
            start, end = end, end + n_rows
            self.add_mask(suite, column, mask[start:end], file=file)

    def add_shares(self, shares: Sequence[ValueTally]) -> None:
        """Add the evidence of readers of shares of an input, in the order of its rows."""
        self.files.add_shares([share.files for share in shares])
        for share in shares:
            for suite, columns in share.suites.items():
                for column, counts in columns.items():
                    for value, rows in counts.items():
                        file = share._first_file[suite, column, value]
                        self.add(suite, column, {value: rows}, file=file)

    def findings(
        self,
        rules: Sequence[Rule],
        files: Mapping[str, Sequence[InputFile]],
        outcomes: Sequence[Outcome] | None = None,
    ) -> tuple[Finding, ...]:
        """The rules that rows break, or that an outcome says are not met, with counts of rows, and
        the files that are copies of others.

        `outcomes` are the results of the rules in their order. A finding names the first file of
        the rule's table with such a row.
        """
        found = []
        for number, rule in enumerate(rules):
            count = count_violations(rule, self.suites)
            if count or (outcomes is not None and not outcomes[number].passed):
                where = rule.suite, rule.evidence
                seen = self.suites[rule.suite][rule.evidence]
                broken = [value for value in seen if not rule.is_met_by(value)]
                first = min((self._first_file[*where, value] for value in broken), default=0)
                name = files[rule.table][first].name
                found.append(Finding(name, rule.column, rule.statement, rule.remedy, count or None))
        for own in files.values():
            found.extend(self.files.copies(own))
        return tuple(found)

    def checked(
        self,
        rules: Sequence[Rule],
        files: Mapping[str, Sequence[InputFile]],
        read: Sequence[Outcome],
        build: Callable[[], Accepted],
        ahead: Callable[[Accepted], object] | None = None,
    ) -> InputCheck[Accepted]:
        """The check of tables that have been read, with the outcomes of their reading.

        Great Expectations judges the rules, in another process if one is available. If our own code
        finds no broken rule, `build` meanwhile makes the result and `ahead` is called with it, to
        start long work. The input is accepted only if both find nothing.
        """
        with ThreadPoolExecutor(1) as other:
            judging = other.submit(copy_context().run, run_suites, rules, self.suites)
            result = None if self.findings(rules, files) else build()
            if result is not None and ahead is not None:
                ahead(result)
            judged = judging.result()
        findings = self.findings(rules, files, judged)
        accepted = None if findings else result
        return InputCheck((*read, *judged), findings, accepted, self.files.listed)
