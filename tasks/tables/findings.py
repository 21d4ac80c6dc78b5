"""Findings about an input, as public sentences and confidential counts.

Records of the check of a run's input: public outcomes, and confidential counts.

`validation/data_docs/` has a page for each Great Expectations suite, with every rule in words,
whether it was met, and the expectations that it was evaluated by, in Great Expectations' own words;
`confidential/data_docs/` counts the rows that break each rule. Its site builder is not used, since
its pages load scripts, styles and pictures from a dozen hosts and show nothing without them.

Evidence on each rule from reading the input: rows that break it, and the values it concerns.

The program counts the rows that break a rule. Great Expectations judges it independently,
from the distinct values that were seen of a column, or from a yes/no column where a rule is about
rows together or about several columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pandas as pd

from ...validation.expectations import run_suites
from ...validation.outcome import Outcome
from ...validation.rules import Rule, Value
from ..pages.document import NONE, Details, Document, FrontPage, Link, Section, Table
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
    write_findings(run.confidential / "findings.json", findings)
    suites: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        suites.setdefault(outcome.subject, []).append(outcome)
    folder = run.checks / DATA_DOCS
    for suite, rules in suites.items():
        write_page(folder / f"{suite}.html", _suite_page(suite, rules, stamp))
    write_page(folder / INDEX, _index_page(suites, check.files, with_counts, stamp))
    write_page(run.confidential / DATA_DOCS / INDEX, _findings_page(findings, stamp))


def _index_page(
    suites: dict[str, list[Outcome]],
    files: Sequence[FileRead],
    with_counts: bool,
    stamp: str | None,
) -> Document:
    rows = tuple(
        (
            Link(_words(suite), f"{suite}.html"),
            _outcome(all(rule.passed for rule in rules)),
            len(rules),
            sum(rule.passed for rule in rules),
        )
        for suite, rules in suites.items()
    )
    headers = ("table", "outcome", "rules", "passed")
    sections = [Section("Tables of the input", (Table(headers, rows, "outcome"),))]
    if files:
        sections.append(Section("Files that were read", (_files_table(files, with_counts),)))
    failed = tuple(
        (_words(suite), _rule_in_words(rule))
        for suite, rules in suites.items()
        for rule in rules
        if not rule.passed
    )
    if failed:
        sections.insert(0, Section("Rules not met", (Table(("table", "rule"), failed),)))
    about = (
        "The rules on the input, evaluated by Great Expectations. Pass or fail is public; how many "
        "rows break a rule is kept in the run's confidential folder."
    )
    verdict = _verdict([rule for rules in suites.values() for rule in rules])
    return Document("Data docs: the input", (about,), tuple(sections), stamp, verdict)


def _files_table(files: Sequence[FileRead], with_counts: bool) -> Table:
    """The files by name, how they are written, and their rows with counts."""
    rows = tuple((file.name, file.written or NONE) for file in files)
    if not with_counts:
        return Table(("file", "written as"), rows)
    counts = [NONE if file.n_rows is None else file.n_rows for file in files]
    counted = tuple((*row, count) for row, count in zip(rows, counts, strict=True))
    return Table(("file", "written as", "rows"), counted)


def _suite_page(suite: str, rules: Sequence[Outcome], stamp: str | None) -> Document:
    """Every rule in words with its outcome, unmet rules first, and its expectations."""
    ordered = sorted(rules, key=lambda rule: rule.passed)
    rows = tuple((_rule_in_words(rule), _outcome(rule.passed)) for rule in ordered)
    asked = tuple(
        (_words(rule.name), expectation.sentence, _outcome(expectation.passed))
        for rule in ordered
        for expectation in rule.expectations
    )
    sections = [Section("Rules", (Table(("rule", "outcome"), rows, "outcome"),))]
    if asked:
        headers = ("rule", "expectation of its distinct values", "outcome")
        table = Table(headers, asked, "outcome")
        details = Details("Expectations in the words of Great Expectations", (table,))
        sections.append(Section("How the rules were evaluated", (details,)))
    verdict = _verdict(rules, Link("All tables", INDEX))
    return Document(f"Data docs: {_words(suite)}", (), tuple(sections), stamp, verdict)


def _verdict(rules: Sequence[Outcome], *links: Link) -> FrontPage:
    failed = sum(not rule.passed for rule in rules)
    words = f"All {len(rules)} rules are met."
    if failed:
        words = f"{failed} of {len(rules)} rules {'is' if failed == 1 else 'are'} not met."
    return FrontPage(words, not failed, "", (), links)


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


def _outcome(passed: bool) -> str:
    return "passed" if passed else "FAILED"


@dataclass
class RuleTally:
    """Evidence on rules, in the order in which rules are looked at; counts and values are
    confidential.

    `files` maps a table to the name that messages show for it.
    """

    files: dict[str, str]
    _broken: dict[Rule, int] = field(default_factory=dict)
    _examples: dict[Rule, str] = field(default_factory=dict)
    _seen: dict[tuple[str, str], dict[Value, None]] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, example: str = "") -> bool:
        """Add cases that break a rule, 0 included; returns whether there were no cases.

        `example` ends the public sentence: only content of a public file.
        """
        self._broken[rule] = self._broken.get(rule, 0) + int(count)
        if count and example:
            self._examples.setdefault(rule, example)
        return not count

    def add_areas(self, rule: Rule, rows: pd.DataFrame, is_wrong: pd.Series, what: str) -> bool:
        """Add the public areas, rows of level, area, parent, that break a rule; an example ends
        with the first area and `what` about it. Returns whether no area breaks the rule."""
        example = ""
        if is_wrong.any():
            level, area, _ = rows[is_wrong].iloc[0]
            example = f", but {area} of level {level} {what}"
        return self.add(rule, is_wrong.sum(), example)

    def see(self, rule: Rule, values: Iterable[Value]) -> None:
        """Add values of a rule's column, None for a row without a value of the required kind."""
        self._seen.setdefault((rule.suite, rule.evidence), {}).update(dict.fromkeys(values))

    def is_broken(self, rule: Rule) -> bool:
        """Whether rows that break a rule were counted."""
        return self._broken[rule] > 0

    @property
    def is_clean(self) -> bool:
        """Whether no rule has been broken."""
        return not any(self._broken.values())

    def outcomes(self) -> tuple[Outcome, ...]:
        """Public outcome of every rule that was looked at, by Great Expectations.

        Each judges independently; input is accepted only if neither finds a fault.
        """
        distinct: dict[str, dict[str, tuple[Value, ...]]] = {}
        for rule, count in self._broken.items():
            counted = (False, True) if count else (False,)
            seen: Iterable[Value] = self._seen.get((rule.suite, rule.evidence), counted)
            distinct.setdefault(rule.suite, {})[rule.evidence] = tuple(seen)
        return run_suites(tuple(self._broken), distinct)

    def findings(self, outcomes: Iterable[Outcome] = ()) -> tuple[Finding, ...]:
        """The rules that were broken by our count or by an outcome, with counts where there are."""
        failed = {(outcome.subject, outcome.name) for outcome in outcomes if not outcome.passed}
        return tuple(
            Finding(
                self.files[rule.table],
                rule.column,
                rule.statement + self._examples.get(rule, ""),
                rule.remedy,
                count or None,
            )
            for rule, count in self._broken.items()
            if count or (rule.suite, rule.name) in failed
        )
