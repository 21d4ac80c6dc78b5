"""A run's page in the Prefect UI after its end: public words and numbers.

Browsers follow no link from a server's page to a file, so that the certificate is shown itself, and
files are named by their paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from ..tasks.pages.document import Block, Document, Section, Table, to_markdown
from ..tasks.products.acceptance import CERTIFICATE, warnings_of
from ..tasks.products.registry import product
from ..tasks.products.reports import checks_table
from ..tasks.products.statement import describe_statement
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.publication import marker_address
from ..tasks.runs.settings import ProductSettings
from ..tasks.tables.findings import RULES_FILE
from ..validation.outcome import CHECKS_FILE

DIGITS = 3
"""Significant digits of figures in tables."""


def key_of(text: str) -> str:
    """`text` as Prefect allows keys of artifacts: lowercase letters a to z, digits and dashes.

    >>> key_of("budget-Personen über 15"), key_of("budget-人")
    ('budget-personen-ber-15', 'budget')
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def show_table(table: Table, *, key: str, description: str) -> None:
    """Show a table; numbers that are not whole are rounded."""
    rows = [
        [float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell for cell in row]
        for row in table.rows
    ]
    named = [dict(zip(table.headers, row, strict=True)) for row in rows]
    create_table_artifact(named, key=key_of(key), description=description)


def show_notes(sentences: Sequence[str], *, key: str, description: str) -> None:
    """Show sentences as a list; nothing without sentences."""
    if sentences:
        lines = "\n".join(f"- {sentence}." for sentence in sentences)
        create_markdown_artifact(lines, key=key, description=description)


def show_outcome(run: RunDirectory, settings: ProductSettings) -> None:
    """The checks of a finished run, if its product has any, its certificate, and its result in
    words."""
    if (run.checks / CHECKS_FILE).exists():
        about = "Independent checks of the result before its release"
        show_table(checks_table(run), key="checks", description=about)
    text = to_markdown(result_page(run, settings))
    about = f"{settings.PRODUCT} of {settings.privacy.dataset}"
    create_markdown_artifact(text, key="result", description=about)
    file = run.release / f"{CERTIFICATE}.md"
    if file.exists():
        about = "The certificate, which goes with every copy of the release"
        text = file.read_text(encoding="utf-8")
        create_markdown_artifact(text, key="certificate", description=about)


def show_failed_rules(run: RunDirectory) -> None:
    """Names of the rules on the input that were not met; never numbers of rows."""
    file = run.checks / RULES_FILE
    outcomes = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    failed = tuple(
        (outcome["suite"].replace("_", " "), outcome["rule"].replace("_", " "))
        for outcome in outcomes
        if not outcome["passed"]
    )
    if failed:
        about = "Rules on the input; how many rows break them is in confidential/ alone"
        table = Table(("table", "rule that is not met"), failed)
        show_table(table, key="failed-rules", description=about)


def result_page(run: RunDirectory, settings: ProductSettings) -> Document:
    """The release, its guarantee, checks, accuracy and place."""
    parts = getattr(settings, "products", None)
    if parts is not None:
        names = ", ".join(parts.chosen())
        introduction = f"Released: {names}. The page of each of these runs has its own result."
        return Document(_title(settings), (introduction,), (_places(run, settings),))
    return Document(_title(settings), (), tuple(_sections(run, settings)), settings.stamp)


def _title(settings: ProductSettings) -> str:
    return f"{settings.privacy.dataset}: {settings.PRODUCT}"


def _sections(run: RunDirectory, settings: ProductSettings) -> Iterator[Section]:
    asked = product(settings.PRODUCT)
    if asked.plan is not None and settings.draws_noise:
        guarantee = describe_statement(asked.plan_of(run, settings).statement)
        yield Section("What is guaranteed", guarantee)
    if (run.checks / CHECKS_FILE).exists():
        n_checks = len(checks_table(run).rows)
        passed = f"All {n_checks} checks of the result passed."
        yield Section("What was checked", (passed, *warnings_of(run)))
    brief = asked.accuracy.in_brief
    if brief is not None and not settings.input.confidential:
        shown = brief(run, settings)
        if shown is not None:
            about = "Errors of the release, for input that may be disclosed:"
            yield Section("How accurate it is", (about, shown))
    yield _places(run, settings)


def _places(run: RunDirectory, settings: ProductSettings) -> Section:
    seconds = sum(stage["seconds"] or 0.0 for stage in run.read_manifest()["stages"].values())
    blocks: list[Block] = [
        f"On the machine that ran it, after {seconds:.0f} s of work:",
        f"- report: `{run.report}`\n- release: `{run.release}`",
    ]
    if settings.published_to is not None:
        place = marker_address(settings.published_to, settings.PRODUCT)
        # Only addresses of the web are links that a browser follows.
        link = f"<{place}>" if place.startswith(("http://", "https://")) else f"`{place}`"
        blocks.append(f"Published: {link}")
    return Section("Where it is", tuple(blocks))
