"""Evidence: rows per distinct value of the columns that the rules on an input are checked on.

Our own code counts the rows that break a rule, and `validation.rules` evaluates it on the
distinct values: of a column, or yes and no where a rule is about rows together or several columns.

Files of an input that were read: formats, rows, and copies among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import pairwise, repeat, starmap
from typing import TypeVar

import numpy as np
import pandas as pd

from ...validation.outcome import Outcome
from ...validation.rules import Rule, Value, count_violations, run_suites
from .columns import CodedColumn, key_hashes
from .findings import FileRead, Finding, InputCheck
from .readers import Batch
from .sources import InputFile

_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass
class FilesRead:
    """Files that were read, by path."""

    files: dict[str, FileRead] = field(default_factory=dict)

    def add(
        self,
        files: Iterable[InputFile],
        n_rows: Iterable[int | None] = repeat(None),
        hashes: Iterable[int] = repeat(0),
    ) -> None:
        """Add files, with their rows and the sums of their hashes where these are known.

        A table that is read more than once has copies only among files that are alike each time.
        """
        for file, n, total in zip(files, n_rows, hashes, strict=False):
            self._add(file.path, FileRead(file.name, None if n is None else int(n), int(total)))

    def add_shares(self, shares: Sequence[FilesRead]) -> None:
        """Add files of which each of some readers has read a share of the rows."""
        for path in dict.fromkeys(path for share in shares for path in share.files):
            own = [share.files[path] for share in shares if path in share.files]
            rows = [one.n_rows for one in own if one.n_rows is not None]
            hashes = sum(one.hashes for one in own) % (1 << 64)
            n_rows = sum(rows) if rows else None
            self._add(path, FileRead(own[0].name, n_rows, hashes))

    @property
    def listed(self) -> tuple[FileRead, ...]:
        """The files, in the order in which they were read."""
        return tuple(self.files.values())

    @property
    def names(self) -> tuple[FileRead, ...]:
        """The files without their rows."""
        return tuple(FileRead(own.name) for own in self.listed)

    def copies(self, files: Sequence[InputFile]) -> Iterator[Finding]:
        """Findings on files of a table with exactly the records of an earlier one, in
        any order and format.

        Records in folders of other values, such as `sex=1`, are others.
        """
        first: dict[object, InputFile] = {}
        for file in files:
            own = self.files.get(file.path)
            if own is None or not own.hashes:
                continue
            same = first.setdefault((file.folders, own.n_rows, own.hashes), file)
            if same is not file:
                rule = f"the file holds the rows of {same.name}"
                remedy = "remove one of them, or put both into one file if people differ"
                yield Finding(file.name, "", rule, remedy)

    def _add(self, path: str, own: FileRead) -> None:
        known = self.files.get(path, FileRead(own.name))
        self.files[path] = FileRead(
            known.name,
            own.n_rows if known.n_rows is None else known.n_rows,
            (known.hashes + own.hashes) % (1 << 64),
        )


def row_hashes(batch: Batch, columns: Mapping[str, CodedColumn], keys: Sequence[str]) -> np.ndarray:
    """A 64-bit hash of every row by its coded columns and its identifiers, shape `(n_rows,)`.

    Values that are one code or one identifier in all formats have one hash.
    """
    hashes = np.zeros(len(next(iter(batch.values()))), dtype=np.uint64)
    for name in sorted({*columns, *keys}):
        if name in keys:
            values = key_hashes(batch[name])
        else:
            own = columns[name]
            texts = np.array(["" if text is None else f"={text}" for text in own.values], object)
            values = pd.util.hash_array(texts, categorize=False)[own.codes]
        # The factor makes the order of columns count; the shift brings high bits down again.
        hashes = (hashes ^ values) * _FACTOR
        hashes ^= hashes >> _SHIFT
    return hashes


Accepted = TypeVar("Accepted")


@dataclass
class ValueTally:
    """Rows per distinct value of every evidence column, by suite, over all batches; confidential.

    For a table in several files it also has the first file with each value. `rules` are those that
    a reader has looked at, in their order, each with the end of its public sentence.
    """

    suites: dict[str, dict[str, dict[Value, int]]] = field(default_factory=dict)
    _first_file: dict[tuple[str, str, Value], int] = field(default_factory=dict)
    files: FilesRead = field(default_factory=FilesRead)
    rules: dict[Rule, str] = field(default_factory=dict)

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
        for file, own in enumerate(_slices(rows)):
            self.add_mask(suite, column, mask[own], file=file)

    def add_column(self, suite: str, name: str, column: CodedColumn, rows: np.ndarray) -> None:
        """Add a column of files one after the other, `rows` (n_files,) of each."""
        for file, own in enumerate(_slices(rows)):
            self.add(suite, name, column.at(own).counts(), file=file)

    def add_shares(self, shares: Sequence[ValueTally]) -> None:
        """Add the evidence of readers of shares of an input, in the order of its rows."""
        self.files.add_shares([share.files for share in shares])
        for share in shares:
            for suite, columns in share.suites.items():
                for column, counts in columns.items():
                    for value, rows in counts.items():
                        file = share._first_file[suite, column, value]
                        self.add(suite, column, {value: rows}, file=file)

    def look_at(self, rule: Rule, counts: Mapping[Value, int], example: str = "") -> None:
        """Add the rows of some distinct values of a rule's evidence, None for a row without a value
        of the required kind.

        `example` ends the public sentence: only content of a public file.
        """
        self.add(rule.suite, rule.evidence, counts)
        self.rules[rule] = self.rules.get(rule) or example

    def count(self, rule: Rule, n_broken: int, example: str = "") -> bool:
        """Add cases that break a yes/no rule, 0 included; returns whether there were none."""
        self.look_at(rule, {True: int(n_broken)} if n_broken else {False: 1}, example)
        return not n_broken

    def count_areas(self, rule: Rule, rows: pd.DataFrame, is_wrong: pd.Series, what: str) -> bool:
        """Add the public areas, rows of level, area, parent, that break a rule; an example ends
        with the first area and `what` about it. Returns whether no area breaks the rule."""
        example = ""
        if is_wrong.any():
            level, area, _ = rows[is_wrong].iloc[0]
            example = f", but {area} of level {level} {what}"
        return self.count(rule, is_wrong.sum(), example)

    def are_met(self, rules: Iterable[Rule]) -> bool:
        """Whether no row breaks one of some rules."""
        return not any(count_violations(rule, self.suites) for rule in rules)

    def outcomes(self, rules: Collection[Rule]) -> tuple[Outcome, ...]:
        """Public outcome of every rule."""
        return run_suites(tuple(rules), self.suites)

    def findings(
        self,
        rules: Collection[Rule],
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
                statement = rule.statement + self.rules.get(rule, "")
                found.append(Finding(name, rule.column, statement, rule.remedy, count or None))
        for own in files.values():
            found.extend(self.files.copies(own))
        return tuple(found)

    def checked(
        self,
        rules: Collection[Rule],
        files: Mapping[str, Sequence[InputFile]],
        read: Sequence[Outcome],
        build: Callable[[], Accepted | None],
    ) -> InputCheck[Accepted]:
        """The check of tables that have been read, with the outcomes of their reading.

        The rules are evaluated in another thread. If no row breaks one by our own count, `build`
        meanwhile makes the result. The input is accepted only if both find nothing.
        """
        with ThreadPoolExecutor(1) as other:
            judging = other.submit(copy_context().run, self.outcomes, rules)
            result = None if self.findings(rules, files) else build()
            judged = judging.result()
        findings = self.findings(rules, files, judged)
        accepted = None if findings else result
        return InputCheck((*read, *judged), findings, accepted, self.files.listed)


def _slices(sizes: np.ndarray) -> Iterator[slice]:
    """Slices of so many rows (n,) each, one after the other."""
    return starmap(slice, pairwise([0, *np.cumsum(sizes).tolist()]))
