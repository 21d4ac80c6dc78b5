"""Group sizes as a product: how many groups of each size there are in every region."""

from __future__ import annotations

from ...validation.group_sizes import check_privacy, run_checks
from ..ledger.accounting import BOUNDED
from ..pages.document import Block
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words
from ..runs.directory import RunDirectory
from .ingest.read import GroupInput, check_groups, read_plan
from .ingest.read import plan_of as levels_of
from .measurement import plan_of
from .plan import UNIVERSE
from .release import (
    FIGURES,
    KEYS,
    aggregate_by_level,
    facts_of_run,
    report,
    settings_of_release,
    write_accuracy,
)
from .settings import GroupSizesSettings


def check_settings_against_input(
    settings: GroupSizesSettings, accepted: GroupInput
) -> tuple[Block, ...]:
    """Hold the settings to the hierarchy; raises InputRefused."""
    levels_of(settings, accepted.hierarchy, int(accepted.counts.sum()))
    return ()


def words_on_costs(settings: GroupSizesSettings, plan: Plan) -> tuple[Block, ...]:
    """The mechanism, and its neighbours."""
    (cost,) = plan.costs
    is_bounded = cost.neighbors == BOUNDED
    change = "moves from a group to another" if is_bounded else "joins or leaves a group"
    own = f"{cost.further['mechanism']}, {cost.further['calibration']} calibration"
    return (f"{own}, one person {change}",)


def facts(run: RunDirectory, settings: GroupSizesSettings) -> Facts:
    """Facts of the certificate."""
    return Facts("group_sizes/templates/certificate.md.j2", {"measured": read_plan(run)})


GROUP_SIZES: Product = Product(
    GroupSizesSettings,
    plan_of,
    Rules(check_groups, check_settings_against_input),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=words_on_costs,
        certificate=facts,
        report=report,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        lambda run: [run.histogram(UNIVERSE)],
        figures=Figures(KEYS, FIGURES, facts_of_run, aggregate_by_level),
        of_release=settings_of_release,
    ),
)
