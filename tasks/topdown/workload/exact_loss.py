"""The exact privacy curve of measuring a universe, over the paths of its spine.

One changed record moves two counts by one in each query of each geolevel: the cell that it leaves,
in a geounit on the path to its old block, and the cell that it joins, on the path to its new one.
Noise has one variance within a geounit and query, determined by the geounit's share, so that only
the shares of a path matter. They add to 1 whatever was bypassed: rho is the same for all pairs of
paths, and the exact curve is the worst pair's.

A query that does not distinguish the two records moves nothing, and a curve of fewer counts is
never larger; so the curve covers every change of one record. Measurement on demand depends on noise
that was drawn before, but its parameters do not, and answers that are not drawn reveal nothing:
`ledger.exact_curve` holds for it too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement

from ....geography.levels import Spine, distinct_paths
from ...census.influence import Norms, Reach
from ...census.queries import Schema, marginal_query
from ...ledger.accounting import rho_from_epsilon_tight
from ...ledger.exact_curve import (
    MOST_COMBINATIONS,
    Counts,
    PrivacyCurve,
    known_curve,
    known_epsilon,
    round_up,
)
from ...ledger.loss_laws import ChangedCount
from ...noise.distributions import distribution_of
from ...runs.errors import InputRefused
from .budget import Budget

MARGIN = Fraction(1, 10**5)
"""Share of an epsilon that is left for pairs of paths where geounits are bypassed: their curves
differ by far less."""

DIGITS = 7
"""Significant digits of a computed rho: so few that rounding errors, which differ between machines,
do not change them."""

LOG_STRIDE, LARGEST_LOG = 0.25, 1e3
"""Steps of log rho by which the root is enclosed, and the logarithm of no excess at all."""

Path = Mapping[str, Fraction]
"""Share of the budget of the geounit at each geolevel, on a path from the root to a block."""


@dataclass(frozen=True)
class Change:
    """How a record changes between two neighbours.

    moves : whether a query at a geolevel may distinguish the record before from the one after.
    keeps_block : whether its block stays, so that both are on one path.
    """

    moves: Callable[[str, str], bool]
    keeps_block: bool = False


ANY_CHANGE = Change(lambda geolevel, query: True)
"""Change of the whole record: every query may differ, and every path may lead to every other."""


def change_of_attribute(schema: Schema, attribute: str) -> Change:
    """Change of one attribute alone: the queries that sum over it agree, and the block stays.

    Raises ValueError for an attribute that the schema does not have.
    """
    axis = schema.attributes.index(attribute)
    return Change(
        lambda geolevel, query: marginal_query(schema, query).shape[axis] > 1, keeps_block=True
    )


def change_of_block(budget: Budget, geolevel: str) -> Change:
    """Change of the block alone, within one geounit at `geolevel`: only lower geolevels differ.

    Raises ValueError for a geolevel that the budget does not have.
    """
    names = list(budget.geolevel_shares)
    below = names[names.index(geolevel) + 1 :]
    return Change(lambda geolevel, query: geolevel in below)


def partial_changes(budget: Budget, schema: Schema) -> dict[str, dict[str, Change]]:
    """Changes of one of the `attributes` alone, by name, and of the `block_within` one geounit
    alone, by the geounit's geolevel.

    Two datasets that differ in an attribute agree on every query that sums over it, so that its
    protection comes from the other queries. Those that differ in a block agree on all queries of
    the geounit's geolevel and of geolevels above. The geounits are those of the spine: bypassing
    one moves a share between geolevels but not across the boundary of a geounit that remains.
    """
    geolevels = list(budget.geolevel_shares)[:-1]
    return {
        "attributes": {name: change_of_attribute(schema, name) for name in schema.attributes},
        "block_within": {name: change_of_block(budget, name) for name in geolevels},
    }


def exact_curve(
    budget: Budget, paths: Sequence[Path] | None = None, change: Change = ANY_CHANGE
) -> PrivacyCurve | None:
    """The curve of one changed record; `paths` of the spine, by default without bypass.

    A record whose block changes goes from a path to any other. Within a known geounit both lead
    through it; still all pairs are compared, which are more than there can be.

    None without noise, and where a person's change may change several records: their counts can
    coincide in more ways than are covered here, and only the figure by rho applies. The same holds
    for noise too wide to be of use, and for more pairs of paths than are compared.
    """
    if budget.infinite or budget.charge != Norms():
        return None
    ends = [_changed_counts(budget, path, change) for path in paths or [budget.geolevel_shares]]
    # Laws are most accurate about the first, and the largest loss is needed.
    ends.sort(key=lambda end: -sum((count.rho * n for count, n in end.items()), Fraction(0)))
    twice = [{count: 2 * n for count, n in end.items()} for end in ends]
    return known_curve({}, (twice,) if change.keeps_block else (ends, ends))


def curve_of_records(
    budget: Budget, reach: Reach, paths: Sequence[Path] | None = None
) -> PrivacyCurve | None:
    """The curve of all records of a universe that one changed record of a table changes together.

    k records leave some cells and join others: the answers to a query fall by k in all, and grow by
    k. In counts of one noise the worst is one count by all of it (`ledger.exact_curve`); where
    geounits are bypassed, the records may go over paths with different noise, and every division of
    them is an alternative, joined wherever two paths have noise in common. Where as many records
    change one way as the other, either half has ends of its own.

    `paths` as of `exact_curve`. None without noise, without a bound on the records, and as
    `known_curve`.
    """
    if budget.infinite or not reach.records:
        return None
    half = reach.records // 2 if reach.opposite else 0
    kinds = list(paths or [budget.geolevel_shares])
    sizes = [size for size in (half, reach.records - half) if size for _ in range(2)]
    if any(math.comb(len(kinds) + size - 1, size) > MOST_COMBINATIONS for size in sizes):
        return None
    choices = [
        [_moved_together(budget, chosen) for chosen in combinations_with_replacement(kinds, size)]
        for size in sizes
    ]
    return known_curve({}, choices)


def exact_epsilon(
    budget: Budget,
    delta: Fraction,
    paths: Sequence[Path] | None = None,
    change: Change = ANY_CHANGE,
) -> float | None:
    """The epsilon of one changed record at delta, an upper bound; None as `exact_curve`.

    Under pure differential privacy it is at most the part of the budget for the changed answers,
    which is also the result where there are more pairs of paths than are compared.
    """
    found = known_epsilon(exact_curve(budget, paths, change), delta)
    if found is None and budget.is_pure and not budget.infinite and budget.charge == Norms():
        shares = (share_of(budget, path, change) for path in paths or [budget.geolevel_shares])
        return round_up(budget.total * max(shares))
    return found


def exact_parts(
    budget: Budget, schema: Schema, delta: Fraction, paths: Sequence[Path] | None = None
) -> dict[str, dict[str, float | None]]:
    """Protection of the parts of a record, by kind and by name as in `partial_changes`."""
    return {
        kind: {name: exact_epsilon(budget, delta, paths, own) for name, own in changes.items()}
        for kind, changes in partial_changes(budget, schema).items()
    }


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
    from scipy.optimize import brentq  # Only needed for a budget given as an epsilon.

    rho = math.exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-9))
    unit = Fraction(10) ** (math.floor(math.log10(rho)) + 1 - DIGITS)
    steps = math.floor(Fraction(rho) / unit)
    while bound(steps * unit) > target:
        steps -= 1
    return steps * unit


def rho_under_guarantee(
    before: Budget, after: Budget, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """The rho of a budget that is split in another way, under the guarantee of the one before.

    Where the rho before was the largest that the guarantee allows, so is the one after; a smaller,
    chosen one stays as far as the guarantee allows it. Raises InputRefused as `exact_rho`.
    """
    largest = exact_rho(after, epsilon, delta)
    if before.total >= exact_rho(before, epsilon, delta):
        return largest
    return min(before.total, largest)


def paths_of(spine: Spine) -> list[Path]:
    """The distinct paths of a spine, in an order that depends on their shares alone."""
    names = [level.name for level in spine.geolevels]
    return [dict(zip(names, path, strict=True)) for path in sorted(distinct_paths(spine.geolevels))]


def measured(budget: Budget, path: Path, change: Change) -> Iterator[tuple[Fraction, Fraction]]:
    """Geounit and query shares of the measurements along a path that a change may affect."""
    for geolevel, share in path.items():
        for query, query_share in budget.query_shares[geolevel].items() if share else ():
            if query_share and change.moves(geolevel, query):
                yield share, query_share


def share_of(budget: Budget, path: Path, change: Change) -> Fraction:
    """The share of the total that is spent along one path on queries that a change may affect."""
    shares = measured(budget, path, change)
    return sum((share * query_share for share, query_share in shares), Fraction(0))


def _changed_counts(budget: Budget, path: Path, change: Change) -> Counts:
    """The counts that a record moves along one path: one of every query that may change."""
    noises = (budget.noise(*shares) for shares in measured(budget, path, change))
    return Counter(ChangedCount(distribution_of(noise)) for noise in noises)


def _moved_together(budget: Budget, paths: Sequence[Path]) -> Counts:
    """The counts that one end of some records moves, each along one of the paths: those on geounits
    of one noise are in one count."""
    moved: Counter[ChangedCount] = Counter()
    for geolevel, query_shares in budget.query_shares.items():
        for share, records in Counter(path.get(geolevel, 0) for path in paths).items():
            for query_share in query_shares.values() if share else ():
                if query_share:
                    noise = distribution_of(budget.noise(Fraction(share), query_share))
                    moved[ChangedCount(noise, records)] += 1
    return moved
