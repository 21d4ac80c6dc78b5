"""What a run of the supplemental tables is charged for before any noise is drawn."""

from __future__ import annotations

from pathlib import Path

from ....validation.supplemental_dhc.privacy_loss import ExpectedSupplemental, check_plan
from ...products.levels import refuse_other_noise
from ...products.product import Charge
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..paths import UNIVERSE, areas_file, plan_file
from ..settings import SupplementalDhcSettings
from ..workload.costs import exact_curve, noise_plan


def measurement_files(run: RunDirectory, _settings: SupplementalDhcSettings) -> list[Path]:
    """The files of noisy measurements that the run publishes, there yet or not."""
    return [run.dpqueries(UNIVERSE, level) for level in read_plan(run).levels]


def expected_of(settings: SupplementalDhcSettings) -> ExpectedSupplemental:
    """What the independent checks expect of a run with these settings."""
    return ExpectedSupplemental(
        rhos=settings.rhos,
        taus=settings.mechanism.taus,
        levels=settings.geography.levels,
        infinite=settings.privacy.infinite,
    )


def charge_of(run: RunDirectory, settings: SupplementalDhcSettings) -> Charge | None:
    """What a run is charged for, once what will be measured is seen to cost what the settings say.

    Sensitivities and variances are recomputed from the stored plan by independent code. Raises
    BudgetRefused before any noise is drawn.
    """
    refuse_other_noise(lambda failures: check_plan(run.root, expected_of(settings), failures))
    if not settings.is_private:
        return None
    plan = read_plan(run)
    return Charge(
        [noise_plan(plan).draw(exact_curve(plan, is_bounded=True))],
        decided_by=[areas_file(run), plan_file(run)],
        truth=[run.histogram(UNIVERSE)],
    )
