"""The exact privacy curve of measuring a universe, over the paths of its spine.

One changed record moves two counts by one in each query of each geolevel: the cell that it leaves,
in a geounit on the path to its old block, and the cell that it joins, on the path to its new one.
Noise has one variance within a geounit and query, told by the geounit's share, so that of every
path only its shares matter. Those of a path add to 1 whatever was bypassed: rho is the same for
all pairs of paths, and the exact curve is that of the worst pair.

A query that does not tell the two records apart moves nothing, and a curve of fewer counts is never
larger; so the curve covers every change of one record. What is measured on demand depends on noise
that was drawn before, but its parameters do not, and answers that are not drawn tell nothing:
`ledger.exact_curve` holds for it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from scipy.optimize import brentq

from ....geography.levels import Spine, distinct_paths
from ...census.sensitivity import Norms
from ...ledger.accounting import rho_from_epsilon_tight
from ...ledger.exact_curve import Counts, PrivacyCurve, rounded_up
from ...ledger.loss_laws import ChangedCount
from ...noise.draws import Noise
from ...noise.margins import distribution_of
from ...runs.errors import InputRefused
from .budget import Budget

MARGIN = Fraction(1, 10**5)
"""Share of an epsilon that is left for pairs of paths where geounits are bypassed: their curves
differ by far less."""

DIGITS = 7
"""Significant digits of a rho that is found: so few that rounding errors, which differ between
machines, do not decide them."""

LEAST_C = Fraction(1, 10**10)
"""Least c of noise of P(x) proportional to exp(-c |x|^power) whose outcomes are listed."""

LOG_STRIDE, LARGEST_LOG = 0.25, 1e3
"""Steps of log rho by which the root is enclosed, and the logarithm of no excess at all."""

Path = Mapping[str, Fraction]
"""Share of the budget of the geounit at each geolevel, on a path from the root to a block."""


def exact_curve(budget: Budget, paths: Sequence[Path] | None = None) -> PrivacyCurve | None:
    """The curve of one changed record; `paths` are those of the spine, by default of no bypass.

    None without noise, and where a person's change may change several records: their counts can
    coincide in more ways than are covered here, and the figure by rho stands alone. So it does
    where noise is wider than any that is of use.
    """
    if budget.infinite or budget.charge != Norms():
        return None
    ends = [_moved(budget, path) for path in paths or [budget.geolevel_shares]]
    if any(count.noise.c < LEAST_C for end in ends for count in end):
        return None
    return PrivacyCurve({}, (ends, ends))


def exact_epsilon(
    budget: Budget, delta: Fraction, paths: Sequence[Path] | None = None
) -> float | None:
    """The epsilon of one changed record at delta, an upper bound; None as `exact_curve`, and where
    there are more pairs of paths than are compared.
    """
    if budget.is_pure and not budget.infinite and budget.charge == Norms():
        return rounded_up(budget.total)
    try:
        curve = exact_curve(budget, paths)
    except ValueError:
        return None
    return None if curve is None else curve.epsilon_upper(delta)


def exact_rho(budget: Budget, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho at which the exact epsilon at delta is at most epsilon, without bypass.

    It has `DIGITS` significant digits, is found to the last of them or one more, and is decided by
    the upper bound at that very rho. `MARGIN` is left for paths of other shares. The rest of the
    budget, its shares, stays.

    Raises InputRefused for a budget without an exact curve, for an epsilon or delta out of range,
    and where the curve is not known so far out.
    """
    least = rho_from_epsilon_tight(epsilon, delta)
    at, target = float(epsilon * (1 - MARGIN)), math.nextafter(float(delta), 0.0)

    def excess(log_rho: float) -> float:
        found = bound(Fraction(math.exp(log_rho)))
        return math.log(found / target) if found else -LARGEST_LOG

    def bound(rho: Fraction) -> float:
        curve = exact_curve(replace(budget, total=rho))
        if curve is None:
            raise InputRefused(
                f"[budget.{budget.universe}] has no exact curve; give rho in place of epsilon"
            )
        return curve.delta_upper(at)

    low = math.log(least) - LOG_STRIDE
    high = low + 2 * LOG_STRIDE
    while excess(high) <= 0:
        low, high = high, high + LOG_STRIDE
    while excess(low) > 0:
        low, high = low - LOG_STRIDE, low
    rho = math.exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-9))
    unit = Fraction(10) ** (math.floor(math.log10(rho)) + 1 - DIGITS)
    steps = math.floor(Fraction(rho) / unit)
    while bound(steps * unit) > target:
        steps -= 1
    return steps * unit


def paths_of(spine: Spine) -> list[Path]:
    """The distinct paths of a spine, in an order that depends on their shares alone."""
    names = [level.name for level in spine.geolevels]
    return [dict(zip(names, path, strict=True)) for path in sorted(distinct_paths(spine.geolevels))]


def _moved(budget: Budget, path: Path) -> Counts:
    """The counts that a record moves along one path: one of every query that is measured."""
    found: dict[ChangedCount, int] = {}
    for geolevel, share in path.items():
        for query_share in budget.query_shares[geolevel].values() if share else ():
            if query_share:
                parameter = budget.noise_parameter(share, query_share)
                count = ChangedCount(distribution_of(Noise(budget.mechanism, parameter)))
                found[count] = found.get(count, 0) + 1
    return found
