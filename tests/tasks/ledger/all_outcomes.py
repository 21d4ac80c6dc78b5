"""Privacy curves by the probabilities of all outcomes, with exact losses and fifty digits."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.noise.distributions import IntegerDistribution

DIGITS = 50
REACH = 100
"""Draws of a probability below e^-100 are left out."""

ONE = 1 << 200
"""The probability 1: to multiply and add whole numbers takes a fraction of the time of decimals."""

Losses = dict[int, int]
"""Probabilities, in multiples of 1 / ONE, of losses, which are in whole multiples of a unit."""


def decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


@lru_cache
def losses_of(count: ChangedCount, unit: int) -> Losses:
    """log P(X = x) / P(X = x - D), in multiples of 1 / unit, by the probability of x."""
    c, power, d = count.noise.c, count.noise.power, count.shift
    reach = math.isqrt(int(REACH / c)) + d + 2 if power == 2 else int(REACH / c) + d + 2
    own: Losses = {}
    with localcontext(prec=DIGITS):
        weight = {x: (-decimal(c * abs(x) ** power)).exp() for x in range(-reach, reach + 1 + d)}
        whole = sum(weight.values())
        for x, w in weight.items():
            loss = int(unit * c * (abs(x - d) ** power - abs(x) ** power))
            own[loss] = own.get(loss, 0) + int(w / whole * ONE)
    return own


@lru_cache(maxsize=4096)
def losses_together(changed: tuple[ChangedCount, ...], unit: int) -> Losses:
    """The loss of counts that all move, in multiples of 1 / unit."""
    if not changed:
        return {0: ONE}
    found: defaultdict[int, int] = defaultdict(int)
    last = losses_of(changed[-1], unit).items()
    for a, p in losses_together(changed[:-1], unit).items():
        for b, q in last:
            found[a + b] += p * q
    return {loss: p // ONE for loss, p in found.items()}


@lru_cache(maxsize=1 << 18)
def exp_minus(loss: int, unit: int) -> Decimal:
    """exp(-loss / unit)."""
    with localcontext(prec=DIGITS):
        return (Decimal(-loss) / unit).exp()


def by_enumeration(changed: Mapping[ChangedCount, int], epsilon: Fraction) -> Decimal:
    """delta = E max(0, 1 - exp(epsilon - L)) of so many counts of each kind."""
    kinds = sorted(changed, key=lambda count: (count.rho, count.shift), reverse=True)
    each = tuple(count for count in kinds for _ in range(changed[count]))
    unit = math.lcm(*(count.noise.c.denominator for count in kinds))
    most = math.floor(epsilon * unit)
    with localcontext(prec=DIGITS):
        factor = decimal(epsilon).exp()
        found = sum(
            p * (1 - factor * exp_minus(loss, unit))
            for loss, p in losses_together(each, unit).items()
            if loss > most
        )
        return Decimal(found) / ONE


def counts_of(
    moves: Iterable[tuple[tuple[int, int], int]], noises: Mapping[int, IntegerDistribution]
) -> Counter[ChangedCount]:
    """The counts that move, given how many of each level move by how much."""
    found: Counter[ChangedCount] = Counter()
    for (level, by), number in moves:
        found[ChangedCount(noises[level], by)] += number
    return found
