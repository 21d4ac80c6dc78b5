"""What the Prefect UI shows beside the DAG: public numbers only."""

from __future__ import annotations

from collections.abc import Sequence

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)
from spineflow.tasks.pages.document import Table
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.report_sections import checks_table
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.topdown.checks.accuracy.figures import read_figures
from spineflow.tasks.topdown.checks.accuracy.report import accuracy_table
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.release.report import solves_table
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.workload.costs import budget_report


def show_table(table: Table, *, key: str, description: str) -> None:
    """Show a table; numbers in it are shown as they are."""
    create_table_artifact(
        [dict(zip(table.headers, row, strict=True)) for row in table.rows],
        key=key,
        description=description,
    )


def show_notes(sentences: Sequence[str], *, key: str, description: str) -> None:
    """Show sentences as a list; nothing if there are none."""
    if sentences:
        lines = "\n".join(f"- {sentence}." for sentence in sentences)
        create_markdown_artifact(lines, key=key, description=description)


def show_budgets(settings: TopdownSettings) -> None:
    """What every query at every geolevel is measured with."""
    for universe in settings.run.universes:
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        create_table_artifact(
            report["queries"], key=f"budget-{universe}", description=f"rho {report['rho']}"
        )


def show_geounits(run: RunDirectory, settings: TopdownSettings) -> None:
    """The number of geounits of every universe's spine."""
    for universe in settings.run.universes:
        spine = read_spine(spine_folder(run, universe))
        rows = tuple(
            (level.name, len(level), int(level.bypassed.sum())) for level in spine.geolevels
        )
        show_table(
            Table(("geolevel", "geounits", "bypassed"), rows),
            key=f"geounits-{universe}",
            description=f"{spine.kind} spine",
        )


def show_solves(run: RunDirectory) -> None:
    """How the least-squares and rounding problems ended."""
    show_table(
        solves_table(run),
        key="solver-outcomes",
        description="Every least-squares and rounding problem, by how it ended",
    )


def show_accuracy(run: RunDirectory, settings: TopdownSettings) -> None:
    """How far the release is from the truth, for inputs that are not confidential."""
    figures = None if settings.input.confidential else read_figures(run)
    if figures is not None:
        show_table(
            accuracy_table(figures),
            key="accuracy",
            description="Errors by level, beside the standard deviation that the budget implies",
        )


def show_outcome(run: RunDirectory, settings: ProductSettings) -> None:
    """The checks of a finished run, and where its release and report are."""
    table = checks_table(run)
    show_table(
        table, key="checks", description="Independent checks of the result before its release"
    )
    stamp = "" if settings.is_private else f"**{settings.stamp}.**\n\n"
    create_markdown_artifact(
        f"{stamp}{len(table.rows)} checks passed.\n\n"
        f"| | |\n|---|---|\n| dataset | {settings.privacy.dataset} |\n"
        f"| release | `{run.release}` |\n| report | `{run.report}` |\n",
        key="release",
        description=f"{settings.PRODUCT} of {settings.privacy.dataset}",
    )
    if run.report.exists():
        create_link_artifact(run.report.as_uri(), key="report", link_text="the public report")
