"""The plan of a trips run: what it measures and is charged for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ....validation.trips.privacy_loss import ExpectedTrips, check_noise
from ....validation.trips.run_files import read_tree as read_public_tree
from ...products.plan import Plan, refuse_other_noise
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of, read_tree
from ..paths import areas_file, cuts_file, leaves_file, measured_file, plan_file, tree_file
from ..settings import TripsSettings
from ..workload.costs import universe_plan
from ..workload.exact_loss import curve_of_change
from ..workload.plan import Plan as TreePlan
from ..workload.statement import exact_of, statement_of
from .files import read_cuts


def plan_of_run(run: RunDirectory, settings: TripsSettings) -> Plan:
    """The plan of a run, once what will be drawn is seen to cost what the settings say.

    Sensitivities and losses are recomputed from the stored tree by independent code. One charge
    covers all levels. Raises BudgetRefused before any noise is drawn.
    """
    plan = plan_of(run, settings)
    expected = expected_of(settings, plan)
    refuse_other_noise(
        lambda failures: check_noise(read_public_tree(run.root), plan.noise, expected, failures)
    )
    curve = curve_of_change(plan, settings.contribution)
    return Plan.of_run(
        run,
        settings,
        [replace(universe_plan(plan, settings.report_delta), curve=curve)],
        statement_of(settings, plan),
        exact_of(plan, read_tree(run).total),
        decided_by=[tree_file(run), areas_file(run), plan_file(run)],
        counts=[leaves_file(run)],
    )


def expected_of(settings: TripsSettings, plan: TreePlan) -> ExpectedTrips:
    """What the independent checks may take for granted about a run."""
    contribution = settings.contribution
    return ExpectedTrips(
        loss=None if plan.guarantee is None else plan.guarantee.parameter,
        threshold=None if plan.histogram is None else plan.histogram.threshold,
        levels=plan.levels,
        top_down=plan.is_top_down,
        children_measured=plan.is_top_down and not plan.measures_all and not plan.is_selected,
        every_node=plan.budget is not None and (plan.measures_all or not plan.is_top_down),
        bounded=contribution.is_bounded,
        trips_per_person=contribution.trips,
        distinct=contribution.are_distinct,
        exact=contribution.is_exact,
    )


def measurement_files(run: RunDirectory, settings: TripsSettings) -> list[Path]:
    """The cuts of all levels, and the files of noisy counts of those that have been cut.

    Of a level that has not been cut, whatever stands there already: it is nothing that the run has
    measured, and must not be taken for that once the level is cut.
    """
    files = []
    for level in plan_of(run, settings).levels:
        files.append(cuts_file(run, level))
        if files[-1].exists():
            shards = read_cuts(run, level).shards
            files += [measured_file(run, level, shard.name) for shard in shards]
        else:
            folder = measured_file(run, level, "any").parent
            files += sorted(folder.glob("*.parquet"))
    return files
