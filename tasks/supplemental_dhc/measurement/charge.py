"""The plan of a run of the supplemental tables: what it measures and is charged for."""

from __future__ import annotations

from ....validation.supplemental_dhc.privacy_loss import ExpectedSupplemental, check_plan
from ...products.plan import Plan, refuse_other_noise
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..paths import UNIVERSE, areas_file, plan_file
from ..settings import SupplementalDhcSettings
from ..workload.costs import universe_plan
from ..workload.statement import EXACT, statement_of


def expected_of(settings: SupplementalDhcSettings) -> ExpectedSupplemental:
    """What the independent checks expect of a run with these settings."""
    return ExpectedSupplemental(
        rhos=settings.rhos,
        taus=settings.mechanism.taus,
        levels=settings.geography.levels,
        infinite=settings.privacy.infinite,
    )


def plan_of_run(run: RunDirectory, settings: SupplementalDhcSettings) -> Plan:
    """The plan of a run, once what will be measured is seen to cost what the settings say.

    Sensitivities and variances are recomputed from the stored plan by independent code. Raises
    BudgetRefused before any noise is drawn.
    """
    refuse_other_noise(lambda failures: check_plan(run.root, expected_of(settings), failures))
    plan = read_plan(run)
    return Plan.of_run(
        run,
        settings,
        [universe_plan(plan)],
        statement_of(settings, plan),
        EXACT,
        decided_by=[areas_file(run), plan_file(run)],
        counts=[run.histogram(UNIVERSE)],
    )
