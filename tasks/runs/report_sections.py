"""Sections that the report of every product has: the checks of a run, and what its stages took."""

from __future__ import annotations

import json

from spineflow.tasks.pages.document import Section, Table
from spineflow.tasks.runs.directory import RunDirectory


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
