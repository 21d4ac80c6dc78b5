"""Ingest of a run of the supplemental tables: from the tables to the run directory's artifacts."""

from __future__ import annotations

from ...census.histograms import write_histogram
from ...ledger.identity import store_identity
from ...runs.directory import RunDirectory
from ...runs.files import write_values
from ...tables.outcomes import write_input_outcomes
from ..paths import UNIVERSE, areas_file, plan_file
from ..settings import SupplementalDhcSettings
from .areas import write_areas
from .read import check_households, plan_of


def ingest_households(run: RunDirectory, settings: SupplementalDhcSettings) -> None:
    """Write the public areas and plan, and the confidential counts of a run.

    The plan comes last: where it is, all is. Raises InputRefused for input that breaks a rule; its
    counts are then in `confidential/findings.json`, and for input that is not confidential in the
    message too.
    """
    check = check_households(settings, run.confidential)
    write_input_outcomes(run, check.outcomes, check.findings, stamp=settings.stamp)
    accepted = check.accepted(with_counts=not settings.input.confidential)
    store_identity(run, settings, accepted.census.digests)
    write_histogram(run.histogram(UNIVERSE), accepted.counts, accepted.areas.names)
    write_areas(areas_file(run), accepted.areas)
    write_values(plan_file(run), plan_of(settings, accepted.areas))
