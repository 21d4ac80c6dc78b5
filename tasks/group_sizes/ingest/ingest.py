"""Ingest of a group-sizes run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

from ...census.histograms import write_histogram
from ...ledger.identity import store_identity
from ...runs.directory import RunDirectory
from ...runs.files import write_values
from ...tables.findings import accepted_input
from ..paths import UNIVERSE, plan_file, regions_file
from ..settings import GroupSizesSettings
from .files import write_exact_groups
from .hierarchy import write_hierarchy
from .read import check_groups, plan_of


def ingest_groups(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the public hierarchy and plan, and the confidential counts of a run.

    The plan comes last: where it is, all is. Raises InputRefused for input that breaks a rule; its
    counts are then in `confidential/findings.json`, and for input that is not confidential in the
    message too.
    """
    accepted = accepted_input(run, settings, check_groups(settings, run.confidential))
    plan = plan_of(settings, accepted.hierarchy, int(accepted.counts.sum()))
    store_identity(run, settings, accepted.digests)
    finest = accepted.hierarchy.levels[-1].codes
    write_histogram(run.histogram(UNIVERSE), accepted.counts, finest)
    write_hierarchy(regions_file(run), accepted.hierarchy)
    if plan.exact_level is not None:
        depth = accepted.hierarchy.names.index(plan.exact_level)
        groups = accepted.hierarchy.sum_up(accepted.counts.sum(axis=1))[depth]
        write_exact_groups(run, accepted.hierarchy.levels[depth].codes, groups)
    write_values(plan_file(run), plan)
