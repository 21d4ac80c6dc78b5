"""The step that reads the input of a topdown run."""

from __future__ import annotations

from spineflow.tasks.ledger.identity import refuse_changed_input, whole_digests
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.paths import geography_file, state_totals_file
from spineflow.tasks.topdown.settings import TopdownSettings


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms."""
    if state_totals_file(run).exists():
        refuse_changed_input(run, settings)
        return found(geography_file(run), whole_digests(run))
    ingest_input(run, settings)
    return made(geography_file(run), whole_digests(run))
