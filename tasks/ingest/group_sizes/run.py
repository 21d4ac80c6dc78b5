"""Ingest of a group-sizes run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

from tasks.ingest.group_sizes.hierarchy import write_hierarchy
from tasks.ingest.group_sizes.read import check_groups, plan_of
from tasks.ingest.group_sizes.run_files import UNIVERSE, regions_file, write_plan
from tasks.ingest.histograms import write_histogram
from tasks.ingest.identity import store_identity
from tasks.ingest.outcomes import write_input_outcomes
from tasks.run_directory import RunDirectory
from tasks.settings.group_sizes import GroupSizesSettings


def ingest_groups(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the public hierarchy and plan, and the confidential counts of a run.

    The plan comes last: where it is, all is. Raises InputRefused for input that breaks a rule; its
    counts are then in `confidential/findings.json`, and for input that is not confidential in the
    message too.
    """
    check = check_groups(settings)
    write_input_outcomes(run, check.outcomes, check.findings, stamp=settings.stamp)
    accepted = check.accepted(with_counts=not settings.input.confidential)
    plan = plan_of(settings, accepted.hierarchy, int(accepted.counts.sum()))
    store_identity(run, settings, accepted.digests)
    run.histogram(UNIVERSE).parent.mkdir(parents=True, exist_ok=True)
    finest = accepted.hierarchy.levels[-1].region
    write_histogram(run.histogram(UNIVERSE), accepted.counts, finest)
    write_hierarchy(regions_file(run), accepted.hierarchy)
    write_plan(run, plan)
