"""What a run of the supplemental tables would cost, and how wide its noise is."""

from __future__ import annotations

from ...ledger.accounting import UNBOUNDED, ZCDP, Guarantee
from ...ledger.exact_curve import PrivacyCurve, known_curve
from ...ledger.loss_laws import ChangedCount
from ...ledger.plan import Measure, UniversePlan
from ...noise.margins import distribution_of
from ...noise.mechanisms import DISCRETE_GAUSSIAN
from ..paths import UNIVERSE
from .margins import margin_of
from .plan import Plan, Query


def universe_plan(plan: Plan) -> UniversePlan:
    """What all queries are measured with, and what that guarantees.

    The guarantee is for one person's record more or less, with up to two records of units. A person
    who is changed, or who moves, is one less and one more: four times the rho, by group privacy.
    """
    guarantee = Guarantee(ZCDP, plan.rho, UNBOUNDED) if plan.is_noisy else None
    return UniversePlan(
        UNIVERSE,
        DISCRETE_GAUSSIAN,
        guarantee,
        plan.rho if plan.is_noisy else None,
        tuple(
            Measure(
                query.part,
                query.noise,
                query.rho / plan.rho,
                query.level,
                query.query_name,
                # All that one person moves may be in one count.
                moved=query.stability**2,
                areas=query.n_regions,
                answers=query.n_answers,
            )
            for query in plan.queries
        ),
        curve=exact_curve(plan, is_bounded=True),
    )


def exact_curve(plan: Plan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The exact curve of one person more or less, or changed if `is_bounded`; None without noise.

    The counts of a query move by its stability in all, and by twice as much where a person is
    changed. Of all such moves, that of a single count is the worst (`ledger.exact_curve`); the
    queries' noise is fixed before anything is drawn, so that their worst pairs compose.
    """
    if not plan.is_noisy:
        return None
    times, moved = 1 + is_bounded, dict[ChangedCount, int]()
    for query in plan.queries:
        assert query.noise is not None
        count = ChangedCount(distribution_of(query.noise), times * query.stability)
        moved[count] = moved.get(count, 0) + 1
    return known_curve(moved, [])


def margin_at(query: Query) -> float | None:
    """The margin of error of 90 % of every count of a query; None without noise."""
    return None if query.noise is None else round(margin_of(query.noise.variance), 2)
