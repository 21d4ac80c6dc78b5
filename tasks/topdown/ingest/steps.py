"""The steps that read the input of a topdown run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from .ingest import count_share_once, ingest_input, read_referred_once


@step("read referred tables", TopdownSettings, run_name="ingest-referred")
def read_referred(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the tables that records refer to, for `count_records`."""
    is_new = read_referred_once(run, settings)
    return (created if is_new else reused)(run.confidential)


@step("count records", TopdownSettings, run_name="ingest-records-{number}")
def count_records(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Count a share of the records, for `ingest`."""
    is_new = count_share_once(run, settings, number, of)
    return (created if is_new else reused)(run.confidential)


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms."""
    if state_totals_file(run).exists():
        refuse_changed_input(run, settings)
        return reused(geography_file(run), whole_digests(run))
    ingest_input(run, settings)
    return created(geography_file(run), whole_digests(run))
