"""What the certificate of a trips release says: public content only, true of its plan."""

from __future__ import annotations

from ...pages.document import Block, Section, Table
from ...products.certificate import BLURRED, Exact, Facts
from ...products.privacy_curves import exact_figures
from ...products.statement import Statement
from ..settings import TripsSettings
from ..workload.costs import noise_plan
from ..workload.exact_loss import curves_of
from ..workload.plan import Plan
from .statements import (
    METHODS,
    change_text,
    contribution_text,
    noise_section,
)
from .table import RANGE_QUERIES


def facts_of(
    settings: TripsSettings, plan: Plan, total: int | None, warning: str | None = None
) -> Facts:
    """What was protected, against which change, with which noise, and what is exact.

    `total` is the number of trips where it is public.
    """
    exact = exact_of(plan, total)
    curves = curves_of(plan, settings.contribution) if settings.is_private else None
    figures = exact_figures(curves, settings.report_delta)
    sentence = " Exact is only the number of trips in all." if len(exact) > 1 else ""
    return Facts(
        made=METHODS[plan.mechanism],
        public=(
            f"{BLURRED}{sentence} A number of one pair of small places is mostly noise: add such "
            "numbers up before you use them."
        ),
        statement=statement_of(settings, plan, warning, figures),
        exact=exact,
        sections=(noise_section(settings, plan), _levels(plan)),
    )


def statement_of(
    settings: TripsSettings,
    plan: Plan,
    warning: str | None = None,
    figures: tuple[Block, ...] = (),
) -> Statement:
    """The guarantee for one person with all trips; `figures` stand beside those of it."""
    if plan.guarantee is None or not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    is_stability = plan.budget is None
    change = [f"The guarantee compares two tables that differ by {change_text(plan.guarantee)}."]
    if is_stability:
        change.append(
            "Which cells have no trips is not hidden behind noise: a cell is published only if its "
            "noisy count passes a threshold, and delta is the chance that a cell of one person "
            "alone is."
        )
    return Statement(
        None,
        (f"Protected is every person with all trips. {contribution_text(settings)}",),
        tuple(change),
        (noise_plan(plan, settings.report_delta).stated,),
        warnings=() if warning is None else (warning,),
        further=figures,
    )


def exact_of(plan: Plan, total: int | None) -> tuple[Exact, ...]:
    """The declared facts: the areas, and the number of trips where neighbours have the same."""
    exact = [Exact("areas", "which areas, or values of the levels, there are")]
    if total is not None:
        where = "released" if plan.is_top_down else "told by the run's public files"
        exact.append(Exact("number of trips", f"there are {total:,} in all, {where} without noise"))
    return tuple(exact)


def _levels(plan: Plan) -> Section:
    rows = tuple((level, plan.tree.level_name(level)) for level in range(plan.tree.depth + 1))
    return Section(
        "What the files hold",
        (
            f"The table, as trips.parquet and trips.csv, without rows of zero trips; and its sums "
            f"at every level of the tree, as {RANGE_QUERIES} and as text.",
            Table(("level", "areas"), rows),
        ),
    )
