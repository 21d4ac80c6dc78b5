"""The steps that read the input of a topdown run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, created_or_reused, reused
from ...runs.steps import step
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from .ingest import ingest_input
from .shares import (
    check_shares_once,
    count_share_once,
    ingest_shares,
    read_referred_once,
    recognise_share_once,
)


@step("read referred tables", TopdownSettings, run_name="ingest-referred")
def read_referred(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the tables that records refer to, for `count_records`."""
    is_new = read_referred_once(run, settings)
    return created_or_reused(run.confidential, is_new=is_new)


@step("count records", TopdownSettings, run_name="ingest-records-{number}")
def count_records(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Count a share of the records, for `ingest`."""
    is_new = count_share_once(run, settings, number, of)
    return created_or_reused(run.confidential, is_new=is_new)


@step("check records", TopdownSettings, run_name="ingest-check")
def check_records(run: RunDirectory, settings: TopdownSettings, of: int) -> Made:
    """Check the tables from the shares of the records, and write all but the digests of people."""
    is_new = check_shares_once(run, settings, of)
    return created_or_reused(run.confidential, is_new=is_new)


@step("recognise people", TopdownSettings, run_name="ingest-digests-{number}")
def recognise_people(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Compute digests of a share of the columns of people, for `ingest`."""
    is_new = recognise_share_once(run, settings, number, of)
    return created_or_reused(run.confidential, is_new=is_new)


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms, or what
    other tasks have left to write."""
    if state_totals_file(run).exists():
        refuse_changed_input(run, settings)
        return reused(geography_file(run), whole_digests(run))
    if not ingest_shares(run, settings):
        ingest_input(run, settings)
    return created(geography_file(run), whole_digests(run))
