"""What a run keeps of the check of its input: public outcomes, and confidential counts.

`validation/data_docs/` has a page for each Great Expectations suite, with every rule in words,
whether it was met, and the expectations that it was evaluated by, in Great Expectations' own words;
`confidential/data_docs/` says how many rows break which rule. Its site builder is not used, since
its pages load scripts, styles and pictures from a dozen hosts and show nothing without them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...validation.outcome import Outcome
from ..pages.document import NONE, Details, Document, FrontPage, Link, Section, Table
from ..runs.directory import RunDirectory
from ..runs.files import write_page, write_record
from ..runs.settings import ProductSettings
from .findings import Accepted, FileRead, Finding, InputCheck, write_findings

RULES_FILE = "rules.json"
"""Public outcome of every rule on the input: pass or fail."""

DATA_DOCS = "data_docs"
"""Folder of the pages, in `validation/` and in `confidential/`."""

INDEX = "index.html"


def accepted_input(
    run: RunDirectory, settings: ProductSettings, check: InputCheck[Accepted]
) -> Accepted:
    """What a run needs of its input, once what the check found is kept.

    Raises InputRefused for input that breaks a rule, with counts unless it is confidential.
    """
    with_counts = not settings.input.confidential
    write_input_outcomes(run, check, with_counts=with_counts, stamp=settings.stamp)
    return check.accepted(with_counts=with_counts)


def write_input_outcomes(
    run: RunDirectory, check: InputCheck[object], *, with_counts: bool, stamp: str | None
) -> None:
    """Write the public outcomes and the confidential findings of a checked input, with pages.

    Rows of the files are public `with_counts`. `stamp` is what the pages of a run that is not
    private say first.
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
        sections.insert(0, Section("What is not met", (Table(("table", "rule"), failed),)))
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
    """Every rule in words with its outcome, unmet rules first, and how it was asked."""
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
        details = Details("What Great Expectations was asked, in its own words", (table,))
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
    """The rule as a sentence; its name where it has none."""
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
