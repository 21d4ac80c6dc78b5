"""The step that ends a comparison: all figures as one table, and the page."""

from __future__ import annotations

from ...products.registry import settings_of
from ...runs import files
from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..settings import EvidenceSettings
from .figures import write_evidence
from .page import page, release_figures, restore_figures


@step("write page", settings_of, run_name="page")
def write_page(run: RunDirectory, settings: EvidenceSettings) -> Made:
    """Write the figures and the page; what is released of a comparison is the figures.

    Those that are released stay: what is made again may take other seconds.
    """
    if run.release.exists():
        restore_figures(run)
    else:
        write_evidence(run, settings)
        release_figures(run)
    return made(files.write_page(run.report, page(run, settings)))
