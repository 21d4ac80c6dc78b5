"""The plan of a group-sizes run: what it measures and is charged for."""

from __future__ import annotations

from dataclasses import replace

from ....validation.group_sizes.privacy_loss import ExpectedGroupSizes, check_plan
from ...products.plan import Plan, refuse_other_noise
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..paths import UNIVERSE, plan_file, regions_file
from ..settings import GroupSizesSettings
from ..workload.costs import universe_plan
from ..workload.exact_loss import exact_curve
from ..workload.mechanisms import PUBLISHED
from ..workload.statement import exact_of, statement_of


def expected_of(settings: GroupSizesSettings) -> ExpectedGroupSizes:
    """What the independent checks expect of a run with these settings."""
    mechanism, declared = settings.mechanism, settings.invariants.groups
    return ExpectedGroupSizes(
        epsilon=settings.epsilon,
        bounded=settings.privacy.neighbors == "bounded",
        quantity=mechanism.largest_quantity,
        published=mechanism.calibration == PUBLISHED,
        mechanism=mechanism.name,
        shares=mechanism.levels,
        smallest_size=settings.smallest_size,
        largest_size=mechanism.largest_size,
        rho=settings.rho,
        is_top_coded=mechanism.top_coded,
        exact_level=settings.invariants.level,
        groups=None if isinstance(declared, bool) else declared,
    )


def plan_of_run(run: RunDirectory, settings: GroupSizesSettings) -> Plan:
    """The plan of a run, once what will be measured is seen to cost what the settings say.

    Shares and sensitivities are recomputed from the stored plan by independent code. Raises
    BudgetRefused before any noise is drawn.
    """
    refuse_other_noise(lambda failures: check_plan(run.root, expected_of(settings), failures))
    plan = read_plan(run)
    return Plan.of_run(
        run,
        settings,
        [replace(universe_plan(plan), curve=exact_curve(plan, is_bounded=True))],
        statement_of(settings, plan),
        exact_of(plan),
        decided_by=[regions_file(run), plan_file(run)],
        counts=[run.histogram(UNIVERSE)],
    )
