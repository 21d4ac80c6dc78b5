"""The step that reads the input of a topdown run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from .ingest import ingest_input


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms."""
    if state_totals_file(run).exists():
        refuse_changed_input(run, settings)
        return reused(geography_file(run), whole_digests(run))
    ingest_input(run, settings)
    return created(geography_file(run), whole_digests(run))
