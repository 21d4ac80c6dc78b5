"""What a run of the supplemental tables would cost, and how wide its noise is."""

from __future__ import annotations

from fractions import Fraction

from ...ledger.accounting import UNBOUNDED, ZCDP, Guarantee
from ...ledger.exact_curve import PrivacyCurve, known_curve
from ...ledger.loss_laws import ChangedCount
from ...ledger.plan import Measure, UniversePlan
from ...noise.margins import distribution_of
from ...noise.mechanisms import DISCRETE_GAUSSIAN
from ...products.budget import Cost
from ...products.privacy_curves import Curves
from ...runs.errors import InputRefused, refused
from ..paths import UNIVERSE
from .margins import margin_of, rho_for_margin
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


def curves_of(plan: Plan) -> Curves | None:
    """The curve and its rho between the plan's neighbours; None where nothing is guaranteed."""
    if not plan.is_noisy:
        return None
    question = "whether this one is in a household or nowhere"
    return Curves({UNIVERSE: plan.rho}, {UNIVERSE: exact_curve(plan)}, question)


def cost_of(plan: Plan) -> Cost:
    """What all queries cost; the margins of 90 % are those that set budgets."""
    queries = [
        {"rho": str(query.rho), "sensitivity": query.stability, "margin": margin_at(query)}
        for query in plan.queries
    ]
    curve = exact_curve(plan)
    return Cost.of(universe_plan(plan), curve, UNBOUNDED, of_queries=queries)


def margin_at(query: Query) -> float | None:
    """The margin of error of 90 % of every count of a query; None without noise."""
    return None if query.noise is None else round(margin_of(query.noise.variance), 2)


def needed_budget(plan: Plan, target: str, margin: int) -> str:
    """A sentence: the rho with which the counts of a query have a margin of error of 90 %.

    `target` is MEASURE:LEVEL:ITERATIONS, such as PH3:State:A-G. Raises InputRefused for a query
    that is not measured.
    """
    queries = {f"{q.measure}:{q.level}:{q.iterations}": q for q in plan.queries}
    if target not in queries:
        first = ", ".join(list(queries)[:3])
        raise InputRefused(f"--target {target}: name a measured query, such as {first}.")
    query = queries[target]
    with refused(f"--target {target}: "):
        needed = rho_for_margin(query.stability, max(margin, 1))
    total = plan.rho - query.rho + needed
    return (
        f"Counts of {target} are within {margin} of the truth, but for post-processing, with a "
        f"probability of 90 % at rho {float(needed):.6g} (now {float(query.rho):.6g}); all queries "
        f"then cost {_decimal(total)}"
    )


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6f}".rstrip("0")
