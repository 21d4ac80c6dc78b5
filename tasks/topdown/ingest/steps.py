"""The steps that read the input of a topdown run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from .ingest import count_parts_once, ingest_input, read_before_once


@step("read addresses", TopdownSettings, run_name="ingest-addresses")
def read_addresses(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the tables that records refer to, for the tasks that count records."""
    is_new = read_before_once(run, settings)
    return (created if is_new else reused)(run.confidential / "ingest")


@step("count persons", TopdownSettings, run_name="ingest-persons-{number}")
def count_persons(run: RunDirectory, settings: TopdownSettings, number: int) -> Made:
    """Count the records of some files, or of none where there are fewer files than tasks."""
    is_new = count_parts_once(run, settings, number)
    return (created if is_new else reused)(run.confidential / "ingest")


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms."""
    if state_totals_file(run).exists():
        refuse_changed_input(run, settings)
        return reused(geography_file(run), whole_digests(run))
    ingest_input(run, settings)
    return created(geography_file(run), whole_digests(run))
