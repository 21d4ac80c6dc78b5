"""The page to look at a release of topdown, which the command `explore` writes."""

from __future__ import annotations

from pathlib import Path

from ..tasks.dissemination.explorer import write_explorer
from ..tasks.products.plan import read_plan
from ..tasks.products.statement import summarise_statement
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.topdown.release.tabulations.levels import variable_labels
from ..tasks.topdown.settings import TopdownSettings


def write_release_page(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Write the page of a finished run next to its report, with a map if it has geometry.

    Raises InputRefused for a run without a release, or without tables of areas.
    """
    if not run.release.exists():
        raise InputRefused(f"{run.root} has no release; finish it with 'spineflow resume'.")
    geometry = settings.input.geometry
    path = run.report.with_name("explore.html")
    write_explorer(
        run.release,
        path,
        title=f"Release of {settings.privacy.dataset}",
        guarantee=summarise_statement(read_plan(run).statement),
        labels=variable_labels(map(settings.schema_of, settings.run.universes)),
        geometry=None if geometry is None else Path(geometry),
    )
    return path
