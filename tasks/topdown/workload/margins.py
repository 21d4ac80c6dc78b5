"""Margins of error of a budget's answers, and the budget that a margin needs.

A margin is the smallest m such that the noise lies within -m and m with a probability of at least
95 percent; it is a quantile of the exact distribution (`tasks.noise.quantiles`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from ...noise.draws import Noise
from ...noise.margins import COVERAGE, distribution_of
from ...noise.quantiles import margin
from ...runs.spelling import did_you_mean
from .budget import Budget

DECIMALS = 3
"""Decimal places of a total that is worked out."""
LARGEST_TOTAL = Fraction(10**6)


def margin_of_error(budget: Budget, geolevel_share: Fraction, query_share: Fraction) -> int:
    """The 95 % margin of error of an answer; 0 without noise."""
    if budget.infinite:
        return 0
    noise = Noise(budget.mechanism, budget.noise_parameter(geolevel_share, query_share))
    return margin(distribution_of(noise), COVERAGE)


def total_for_margin(budget: Budget, geolevel: str, query: str, target: int) -> Fraction:
    """The smallest total, to three decimals, at which a query's margin is at most `target`.

    The shares stay as they are. Raises ValueError for a query that is not asked at the geolevel,
    for a negative target, and for one that needs more than 10^6.
    """
    share = budget.query_shares.get(geolevel, {}).get(query, Fraction(0))
    if share == 0:
        raise ValueError(_not_asked(budget, geolevel, query))
    if target < 0:
        raise ValueError("a margin of error cannot be negative")
    unit = 10**DECIMALS

    def meets(thousandths: int) -> bool:
        tried = replace(budget, total=Fraction(thousandths, unit), infinite=False)
        return margin_of_error(tried, budget.geolevel_shares[geolevel], share) <= target

    end = _above_by_chebyshev(budget, geolevel, share, target)
    last = int(min(end, LARGEST_TOTAL) * unit)
    if not meets(last):
        raise ValueError(f"a margin of {target} needs a total of more than {LARGEST_TOTAL}")
    # Halving comes close before bisection does: noise far too wide is slow to tabulate.
    first = next((start for start in _down_from(last) if not meets(start)), 1)
    return Fraction(bisect_left(range(first, last), True, key=meets) + first, unit)


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


def _above_by_chebyshev(budget: Budget, geolevel: str, share: Fraction, target: int) -> Fraction:
    """A total that surely meets a target: its noise has a variance of at most target^2 / 20."""
    per_total = budget.geolevel_shares[geolevel] * share
    if target == 0:
        return LARGEST_TOTAL
    if budget.is_pure:
        # Variance at most 2 scale^2, and the scale is 2 / (total * shares).
        return Fraction(13, target) / per_total + 1
    return Fraction(20, target**2) / per_total + 1


def _down_from(last: int) -> Iterator[int]:
    """Halves of a number of thousandths, down to 1."""
    while last > 1:
        last //= 2
        yield last
