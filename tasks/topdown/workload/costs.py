"""Cost of a budget: its guarantee, the protection of one attribute or the block, and every noise.

Margins of error of a budget's answers, and the budget that a margin needs.

A margin is the smallest m such that the noise is between -m and m with a probability of at least 95
percent; it is a quantile of the exact distribution (`tasks.noise.quantiles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from ...census.influence import Norms
from ...census.queries import Schema
from ...ledger.accounting import (
    BOUNDED,
    ONE_OF_SEVERAL,
    PURE_DP,
    SEVERAL_RECORDS,
    TWO_RECORDS,
    ZCDP,
    Guarantee,
)
from ...ledger.plan import REPORT_DELTA, Measure, UniversePlan
from ...noise.distributions import distribution_of
from ...noise.quantiles import is_too_wide
from ...products.budget import Cost
from ..settings import TopdownSettings
from .budget import Budget
from .exact_loss import exact_curve, exact_parts, partial_changes, share_of


def cost_of(settings: TopdownSettings, universe: str) -> Cost:
    """`cost_of_budget` of a universe."""
    return cost_of_budget(settings.budget_of(universe), settings.schema_of(universe))


def cost_of_budget(budget: Budget, schema: Schema) -> Cost:
    """Cost of a budget where no geounit is bypassed, one record of the universe being changed.

    The exact epsilons of each attribute and of the block within a geounit take seconds.
    """
    plan, delta = universe_plan(budget, tuple(measures_of(budget))), reported_delta(budget)
    parts = {
        kind: {
            name: plan.epsilons(share_of(budget, budget.geolevel_shares, own))["tight"]
            for name, own in changes.items()
        }
        for kind, changes in partial_changes(budget, schema).items()
    }
    return Cost(
        plan,
        exact_curve(budget),
        guarantee_of(budget).neighbors,
        parts=parts,
        exact_parts=lambda: parts if budget.infinite else exact_parts(budget, schema, delta),
        of_queries=[
            {
                "geolevel_share": str(budget.geolevel_shares[own.level]),
                "query_share": str(budget.query_shares[own.level][own.query]),
            }
            for own in plan.measures
        ],
    )


def part_of(geolevel: str, query: str) -> str:
    """Name under which a query's noise at a geolevel is charged."""
    return f"{geolevel}/{query}"


def measures_of(
    budget: Budget, geounits: Mapping[str, Mapping[Fraction, int]] | None = None
) -> Iterator[Measure]:
    """The measures of a budget on a spine, by default on one where no geounit is bypassed.

    `geounits` are the numbers of the spine's geounits by geolevel and share. One changed record
    moves two answers of a query by one in each geolevel.
    """
    shares = {name: {share: None} for name, share in budget.geolevel_shares.items()}
    for geolevel, numbers in (shares if geounits is None else geounits).items():
        named = budget.level_names.get(geolevel, "")
        for query, query_share in budget.query_shares[geolevel].items():
            for share, n in numbers.items():
                if whole := share * query_share:
                    noise = None if budget.infinite else budget.noise(share, query_share)
                    part = part_of(geolevel, query)
                    yield Measure(part, noise, whole, geolevel, query, 2, areas=n, named=named)


def guarantee_of(budget: Budget) -> Guarantee:
    """The guarantee of measuring one universe with this budget: native for one record changed.

    The cost of a person's change follows from the records it changes (`census.influence`).
    """
    definition = PURE_DP if budget.is_pure else ZCDP
    charged, stated = (_factor(budget, norms) for norms in (budget.charge, budget.stated))
    more = stated if stated > charged else None
    if budget.charge != Norms():
        neighbors = TWO_RECORDS if budget.charge == Norms.of_records(2) else SEVERAL_RECORDS
        return Guarantee(
            definition, budget.total, neighbors, bounded_factor=charged, stated_factor=more
        )
    if more is None:
        return Guarantee(definition, budget.total, BOUNDED)
    return Guarantee(definition, budget.total, ONE_OF_SEVERAL, bounded_factor=more)


def _factor(budget: Budget, norms: Norms) -> Fraction:
    """Ratio of the rho of bounded zCDP of a change to the rho of one changed record."""
    return norms.epsilon_factor**2 if budget.is_pure else norms.rho_factor


def reported_delta(budget: Budget) -> Fraction:
    """The delta at which the epsilon of a universe is reported."""
    return REPORT_DELTA if budget.delta is None else budget.delta


def universe_plan(budget: Budget, measures: tuple[Measure, ...] = ()) -> UniversePlan:
    """The plan of a universe: its loss, and measures as a spine has them."""
    return UniversePlan(
        budget.universe,
        budget.mechanism,
        None if budget.infinite else guarantee_of(budget),
        None if budget.infinite else budget.total,
        measures,
        reported_delta(budget),
    )


def refuse_wide_noise(budget: Budget) -> None:
    """Raise ValueError for noise that is too wide to compute its margins."""
    for geolevel, shares in {} if budget.infinite else budget.query_shares.items():
        for query, share in shares.items():
            noise = budget.noise(budget.geolevel_shares[geolevel], share)
            if is_too_wide(distribution_of(noise)):
                raise ValueError(
                    f"rho is {float(budget.total):.3g}, by which the noise of {query!r} at "
                    f"{geolevel} has a standard deviation of {float(noise.parameter) ** 0.5:,.0f}: "
                    "too wide for a margin of error; spend more, or ask fewer queries"
                )
