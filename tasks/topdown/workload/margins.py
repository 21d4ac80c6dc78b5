"""Margins of error of a budget's answers, and the budget that a margin needs.

A margin is the smallest m such that the noise lies within -m and m with a probability of at least
95 percent; it is a quantile of the exact distribution (`tasks.noise.quantiles`).
"""

from __future__ import annotations

from fractions import Fraction

from ...noise.margins import distribution_of, loss_for_margin
from ...noise.quantiles import is_too_wide
from ...runs.spelling import did_you_mean
from .budget import Budget

UNIT = Fraction(1, 1000)
"""What a total that is worked out is a multiple of."""
LARGEST_TOTAL = Fraction(10**6)


def refuse_wide_noise(budget: Budget) -> None:
    """Raise ValueError for noise that is too wide for its margins to be worked out."""
    for geolevel, shares in {} if budget.infinite else budget.query_shares.items():
        for query, share in shares.items():
            noise = budget.noise(budget.geolevel_shares[geolevel], share)
            if is_too_wide(distribution_of(noise)):
                raise ValueError(
                    f"rho is {float(budget.total):.3g}, by which the noise of {query!r} at "
                    f"{geolevel} has a standard deviation of {float(noise.parameter) ** 0.5:,.0f}: "
                    "too wide for a margin of error; spend more, or ask fewer queries"
                )


def total_for_margin(budget: Budget, geolevel: str, query: str, target: int) -> Fraction:
    """The smallest total, to three decimals, at which a query's margin is at most `target`.

    The shares stay as they are. Raises ValueError for a query that is not asked at the geolevel,
    for a negative target, and for one that needs more than 10^6.
    """
    share = budget.query_shares.get(geolevel, {}).get(query, Fraction(0))
    if share == 0:
        raise ValueError(_not_asked(budget, geolevel, query))
    noise = budget.noise(budget.geolevel_shares[geolevel], share)
    total = loss_for_margin(noise, budget.total, target, UNIT)
    if total > LARGEST_TOTAL:
        raise ValueError(f"a margin of {target} needs a total of more than {LARGEST_TOTAL}")
    return total


def _not_asked(budget: Budget, geolevel: str, query: str) -> str:
    """What is wrong with a query that is not asked at a geolevel, and what is near it."""
    geolevels = list(budget.query_shares)
    if geolevel not in geolevels:
        return (
            f"{geolevel!r} is no geolevel of this budget{did_you_mean(geolevel, geolevels)}; there "
            f"are {', '.join(geolevels)}"
        )
    asked = [name for name, share in budget.query_shares[geolevel].items() if share]
    hint = did_you_mean(query, asked)
    return f"{query!r} is not asked at {geolevel!r}{hint}; there are {', '.join(asked)}"
