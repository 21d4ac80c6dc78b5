"""Group sizes as a product: how many groups of each size there are in every region."""

from __future__ import annotations

from collections.abc import Iterator

from ...validation.group_sizes.privacy_loss import check_privacy
from ...validation.group_sizes.run_checks import run_checks
from ..pages.document import Block
from ..products import budget
from ..products.comparison import read_errors
from ..products.product import Accuracy, Figures, Product
from ..runs.directory import RunDirectory
from .checks.accuracy import FIGURES, KEYS, facts_of_run, write_accuracy
from .checks.expected import settings_of_release
from .ingest.files import read_plan
from .ingest.read import GroupInput, check_groups, costs, plan_of, public_plan
from .measurement.charge import plan_of_run
from .paths import UNIVERSE
from .release.certificate import facts_of
from .release.report import NEIGHBORS, by_level, loss_text, report, sizes_text
from .settings import GroupSizesSettings
from .workload.costs import needed_budget, needed_split
from .workload.exact_loss import curves_of


def fits(settings: GroupSizesSettings, accepted: GroupInput) -> tuple[Block, ...]:
    """Hold the settings to the hierarchy; raises InputRefused."""
    plan_of(settings, accepted.hierarchy, int(accepted.counts.sum()))
    return ()


def costs_in_words(settings: GroupSizesSettings) -> Iterator[Block]:
    """The mechanism, and the costs."""
    plan = public_plan(settings)
    yield f"{plan.mechanism}, {plan.calibration} calibration, {NEIGHBORS[plan.bounded]}"
    yield from budget.costs_in_words(costs(settings))


def summary(run: RunDirectory, settings: GroupSizesSettings) -> tuple[str, ...]:
    """What is in the release, and what it cost."""
    plan = read_plan(run)
    regions = ", ".join(f"{level.n_regions:,} {level.level}" for level in plan.levels)
    return (
        f"{plan.groups:,} groups of size {sizes_text(plan)}; {regions}",
        f"{plan.mechanism}, {plan.calibration} calibration; {loss_text(plan)}, "
        f"{NEIGHBORS[plan.bounded]}",
    )


GROUP_SIZES: Product = Product(
    settings=GroupSizesSettings,
    costs=costs,
    costs_in_words=costs_in_words,
    check_input=check_groups,
    fits=fits,
    needed=lambda settings, target, margin: needed_budget(public_plan(settings), target, margin),
    needed_at_once=lambda settings, wanted: needed_split(public_plan(settings), wanted),
    curves=lambda settings: curves_of(public_plan(settings)),
    plan=plan_of_run,
    check_plan=check_privacy,
    checks=lambda run, settings: run_checks(run.root, run.unchecked_release),
    facts=lambda run, settings: facts_of(settings, read_plan(run)),
    accuracy=Accuracy(read_errors, write_accuracy, lambda run: [run.histogram(UNIVERSE)]),
    document=report,
    summary=summary,
    figures=Figures(KEYS, FIGURES, facts_of_run, by_level),
    of_release=settings_of_release,
)
