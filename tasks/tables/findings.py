"""What is wrong with an input, as public sentences and confidential counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ...validation.outcome import Outcome
from ..runs.errors import InputRefused
from ..runs.files import write_record

Accepted = TypeVar("Accepted", covariant=True)


@dataclass(frozen=True)
class Finding:
    """A rule that an input file breaks.

    `file` is the name that the settings give; `column` may be empty where the rule is about the
    file; `rule` is a clause such as "QSEX must be 1 or 2", `remedy` an imperative.
    `count` is the number of rows (or lines) that break the rule and `line` the first that does,
    None where they are unknown; both are confidential unless the input is not, since a line's
    number tells of rows before it. No part holds a value of a record.
    """

    file: str
    column: str
    rule: str
    remedy: str
    count: int | None = None
    line: int | None = None

    def sentence(self, *, with_counts: bool = False, further: int = 0) -> str:
        """The finding as one sentence; `further` is the number of other findings to mention."""
        count = others = ""
        if with_counts and self.count is not None:
            count = f" ({self.count:,} {'row breaks' if self.count == 1 else 'rows break'} this)"
        elif with_counts and self.line is not None:
            count = f" (first in line {self.line:,})"
        if further:
            others = f" (and {further} further {'rule' if further == 1 else 'rules'} failed)"
        return f"{self.file}: {self.rule}{count}; {self.remedy}{others}."


class UnreadableInput(Exception):
    """Ends the reading of a file; carries the finding and nothing of the file's content."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.sentence())
        self.finding = finding


def refusal(findings: Sequence[Finding], *, with_counts: bool = False) -> InputRefused:
    """The error for a non-empty sequence of findings: the first one's sentence.

    The number of further findings is public, since pass or fail of each rule is.
    """
    first, *others = findings
    return InputRefused(first.sentence(with_counts=with_counts, further=len(others)))


@contextmanager
def unreadable_refused(*, with_counts: bool = False) -> Iterator[None]:
    """Raise InputRefused for a file that cannot be read within."""
    try:
        yield
    except UnreadableInput as error:
        raise refusal([error.finding], with_counts=with_counts) from None


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings with their counts as JSON; the file is confidential."""
    write_record(path, [asdict(finding) for finding in findings])


@dataclass(frozen=True)
class FileRead:
    """A file that was read: its name, how it is written, in words ("" if unknown), its rows, and
    the sum of their hashes, 0 if unknown. Rows and sum are confidential.
    """

    name: str
    written: str = ""
    n_rows: int | None = None
    hashes: int = 0


@dataclass(frozen=True)
class InputCheck(Generic[Accepted]):
    """Outcome of checking an input; `result` is None if a rule failed.

    `outcomes` are public, and so are the names of `files` and how they are written. The counts in
    `findings` are confidential unless the input is not, and so are `notes`: sentences on records
    that break no rule.
    """

    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    result: Accepted | None
    files: Sequence[FileRead] = ()
    notes: tuple[str, ...] = ()

    def accepted(self, *, with_counts: bool = False) -> Accepted:
        """The result, or InputRefused with the first finding; counts only if asked for."""
        if self.result is None:
            raise refusal(self.findings, with_counts=with_counts)
        return self.result
