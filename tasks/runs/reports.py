"""Reports of runs: what that of every product begins and ends with, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from spineflow.tasks.pages.document import Document, Section, Table, to_html
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.settings import ProductSettings


def report_document(
    run: RunDirectory, settings: ProductSettings, release: str, sections: Iterable[Section]
) -> Document:
    """The report of a run: what it released, the product's own sections, checks and seconds.

    `release` is the beginning of a sentence that ends with digests of settings and code.
    """
    manifest = run.read_manifest()
    sentence = (
        f"{release}, settings {manifest['settings_digest'][:12]}, code {manifest['code_version']}."
    )
    return Document(
        f"Report of run {manifest['run_id']}",
        (sentence,),
        (*sections, checks_section(run), stages_section(run)),
        settings.stamp,
    )


def write_page(path: Path, document: Document) -> Path:
    """Write a document as HTML, whole or not at all; returns the path."""
    with replacing(path) as part:
        part.write_text(to_html(document), encoding="utf-8")
    return path


def checks_table(run: RunDirectory) -> Table:
    """The public outcome of every check on the result."""
    checks = json.loads((run.checks / "checks.json").read_text(encoding="utf-8"))["checks"]
    rows = tuple(
        (
            check["universe"],
            check["name"].replace("_", " "),
            "passed" if check["passed"] else "FAILED",
            check["detail"],
        )
        for check in checks
    )
    return Table(("universe", "check", "outcome", "what it saw"), rows)


def checks_section(run: RunDirectory) -> Section:
    """The checks, as a section."""
    return Section("Checks", (checks_table(run),))


def stages_section(run: RunDirectory) -> Section:
    """Seconds of work of every finished stage; the report's own are known once it is written."""
    rows = tuple(
        (name, float(stage["seconds"] or 0.0))
        for name, stage in run.read_manifest()["stages"].items()
        if name != "report"
    )
    return Section("Seconds of work", (Table(("stage", "seconds"), rows),))
