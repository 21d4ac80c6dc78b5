"""Evidence as a product: files that are written again with its page, and the last lines of a
command."""

from __future__ import annotations

from collections.abc import Iterator

from ..pages.document import Block
from ..runs.directory import RunDirectory
from .ingest import evidence_file
from .methods.publish import draws_of
from .release.figures import read_evidence
from .release.page import restore_figures, strengths_table
from .settings import EvidenceSettings


def rewritten(run: RunDirectory, _settings: EvidenceSettings) -> None:
    """Put the figures that the page shows where it is, if they are gone."""
    if not evidence_file(run).exists():
        restore_figures(run)


def summary(run: RunDirectory, settings: EvidenceSettings) -> Iterator[Block]:
    """Compared methods, the main figures, and the place of all figures."""
    yield f"{len(settings.methods)} methods, {len(draws_of(settings))} releases"
    yield strengths_table(read_evidence(run), settings)
    yield f"figures: {evidence_file(run)}"
    yield f"report: {run.report}"
