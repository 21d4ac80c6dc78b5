"""Findings about an input, as public sentences and confidential counts.

Records of the check of a run's input: public outcomes, and confidential counts.

`validation/data_docs/index.html` has every rule in words, and whether it was met;
`confidential/data_docs/` counts the rows that break each rule. The site builder of Great
Expectations is not used, since its pages load scripts, styles and pictures from a dozen hosts and
show nothing without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from ...validation.outcome import Outcome
from ..pages.document import NONE, Document, FrontPage, Section, Table
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import write_page, write_record
from ..runs.settings import ProductSettings

Accepted = TypeVar("Accepted", covariant=True)


@dataclass(frozen=True)
class Finding:
    """A rule that an input file breaks.

    `file` is the name in the settings; `column` may be empty where the rule is about the
    file; `rule` is a clause such as "QSEX must be 1 or 2", `remedy` an imperative.
    `count` is the number of rows (or lines) that break the rule and `line` the first of them,
    None where they are unknown; both are confidential unless the input is public, since a line's
    number reveals the number of rows before it. No part holds a value of a record.
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
    """Ends the reading of a file of a table; carries the finding, without the file's content."""

    def __init__(self, table: str, finding: Finding) -> None:
        super().__init__(finding.sentence())
        self.table, self.finding = table, finding


def refusal(findings: Sequence[Finding], *, with_counts: bool = False) -> InputRefused:
    """The error for a non-empty sequence of findings: the first one's sentence.

    The number of further findings is public, since pass or fail of each rule is.
    """
    first, *others = findings
    return InputRefused(first.sentence(with_counts=with_counts, further=len(others)))


@contextmanager
def refuse_unreadable(*, with_counts: bool = False) -> Iterator[None]:
    """Raise InputRefused for a file that cannot be read within."""
    try:
        yield
    except UnreadableInput as error:
        raise refusal([error.finding], with_counts=with_counts) from None


@dataclass(frozen=True)
class FileRead:
    """A file that was read: its name, its rows, and the sum of their hashes, 0 if unknown. Rows and
    sum are confidential.
    """

    name: str
    n_rows: int | None = None
    hashes: int = 0


@dataclass(frozen=True)
class InputCheck(Generic[Accepted]):
    """Outcome of checking an input; `result` is None if a rule failed.

    `outcomes` are public, and so are the names of `files`. The counts in `findings` are
    confidential unless the input is not.
    """

    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    result: Accepted | None
    files: Sequence[FileRead] = ()

    def accepted(self, *, with_counts: bool = False) -> Accepted:
        """The result, or InputRefused with the first finding; counts only if asked for."""
        if self.result is None:
            raise refusal(self.findings, with_counts=with_counts)
        return self.result


RULES_FILE = "rules.json"
"""Public outcome of every rule on the input: pass or fail."""

DATA_DOCS = "data_docs"
"""Folder of the pages, in `validation/` and in `confidential/`."""

INDEX = "index.html"


def accepted_input(
    run: RunDirectory, settings: ProductSettings, check: InputCheck[Accepted]
) -> Accepted:
    """A run's accepted input, after the outcomes of its check are written.

    Raises InputRefused for input that breaks a rule, with counts unless it is confidential.
    """
    with_counts = not settings.input.confidential
    write_input_outcomes(run, check, with_counts=with_counts, stamp=settings.stamp)
    return check.accepted(with_counts=with_counts)


def write_input_outcomes(
    run: RunDirectory, check: InputCheck[object], *, with_counts: bool, stamp: str | None
) -> None:
    """Write the public outcomes and the confidential findings of a checked input, with pages.

    Rows of the files are public `with_counts`. `stamp` is the first line of the pages of a run that
    is not private.
    """
    outcomes, findings = check.outcomes, check.findings
    listed = [
        {"suite": outcome.subject, "rule": outcome.name, "passed": outcome.passed}
        for outcome in outcomes
    ]
    write_record(run.checks / RULES_FILE, listed)
    counted = [asdict(finding) for finding in findings]
    write_record(run.confidential / "findings.json", counted)
    write_page(run.checks / DATA_DOCS / INDEX, _rules_page(check, with_counts, stamp))
    write_page(run.confidential / DATA_DOCS / INDEX, _findings_page(findings, stamp))


def _rules_page(check: InputCheck[object], with_counts: bool, stamp: str | None) -> Document:
    """Every rule in words with its outcome, unmet ones first, by table."""
    suites: dict[str, list[Outcome]] = {}
    for rule in check.outcomes:
        suites.setdefault(rule.subject, []).append(rule)
    sections = []
    failed = tuple(
        (_words(rule.subject), _rule_in_words(rule)) for rule in check.outcomes if not rule.passed
    )
    if failed:
        sections.append(Section("Rules not met", (Table(("table", "rule"), failed),)))
    for suite, rules in suites.items():
        ordered = sorted(rules, key=lambda rule: rule.passed)
        rows = tuple(
            (_rule_in_words(rule), "passed" if rule.passed else "FAILED") for rule in ordered
        )
        listed = Table(("rule", "outcome"), rows, "outcome")
        sections.append(Section(f"Rules on {_words(suite)}", (listed,)))
    if check.files:
        rows_of = [(own.name, NONE if own.n_rows is None else own.n_rows) for own in check.files]
        shown = 1 + with_counts
        files = Table(("file", "rows")[:shown], tuple(row[:shown] for row in rows_of))
        sections.append(Section("Files that were read", (files,)))
    about = (
        "The rules on the input; Great Expectations evaluates those on allowed values, ranges and "
        "patterns. Pass or fail is public; how many rows break a rule is kept in the run's "
        "confidential folder."
    )
    words = f"All {len(check.outcomes)} rules are met."
    if failed:
        is_one = len(failed) == 1
        words = f"{len(failed)} of {len(check.outcomes)} rules {'is' if is_one else 'are'} not met."
    verdict = FrontPage(words, not failed, "", (), ())
    return Document("Data docs: the input", (about,), tuple(sections), stamp, verdict)


def _rule_in_words(rule: Outcome) -> str:
    """The rule as a sentence; its name where it has no detail."""
    words = rule.detail or _words(rule.name)
    return f"{words[:1].upper()}{words[1:]}."


def _findings_page(findings: Sequence[Finding], stamp: str | None) -> Document:
    rows = tuple(
        (
            finding.file,
            finding.rule,
            NONE if finding.count is None else finding.count,
            finding.remedy,
        )
        for finding in findings
    )
    found = Table(("file", "rule", "rows that break it", "remedy"), rows)
    about = "How many rows break each rule. These counts are confidential: do not pass them on."
    section = Section("Findings", (found if rows else "No rule is broken.",))
    return Document("Data docs, confidential: the input", (about,), (section,), stamp)


def _words(name: str) -> str:
    return name.replace("_", " ")
