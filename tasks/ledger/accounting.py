"""Accounting of privacy loss: composition in exact fractions, and conversion to epsilon.

Parameters stay `Fraction` throughout; the epsilon of a zCDP guarantee at some delta is a float,
because it is shown and never spent.

- rho-zCDP composes by addition over queries, geolevels, universes and products.
- epsilon at delta: `epsilon_tight` ([DiscreteGaussian2020]) and `epsilon_simple`
  ([ZCDP2016], the conversion that the Census Bureau reports).
- Neighbours: bounded (one record changed) and unbounded (one record added or removed) guarantees
  are kept apart; `Guarantee.bounded_rho` converts to the common figure.
- Semantics beyond the whole record: a product gives the part of the total that protects one
  attribute, or the block within a geounit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from ..runs.errors import InputRefused

ZCDP = "zcdp"
PURE_DP = "pure_dp"
BOUNDED = "bounded"
UNBOUNDED = "unbounded"
TWO_RECORDS = "two_records"
"""As bounded, of a table in which one person's change may change two records."""
SEVERAL_RECORDS = "several_records"
"""As bounded, of a table in which one person's change may change several records."""
ONE_OF_SEVERAL = "bounded_one_of_several"
"""As bounded, where one person's change may change several records and the guarantee is counted
for one of them; the total of all is stated as well."""

UNBOUNDED_OF_SEVERAL = "unbounded_one_of_several"
"""As unbounded, for counts as in SafeTab-P, where one person's change may change several
records: the guarantee is counted for one of them, and the total of all is stated as well."""

GROUP_OF_TWO = Fraction(4)
"""Bounded over unbounded rho by group privacy: a change is a removal and an addition, and zCDP
for groups of two costs 2^2. It applies also where one person's change changes two records."""

SAFETAB_P = Fraction(2)
"""Bounded over unbounded rho for SafeTab-P, by Theorem 2 of [SafeTabP2025]."""


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of a mechanism, in its own terms.

    `definition` is "zcdp" (parameter rho) or "pure_dp" (parameter epsilon); `delta` is the
    probability, if any, that a mechanism adds on top; `neighbors` is "bounded", "unbounded",
    "two_records", "several_records", "bounded_one_of_several" or "unbounded_one_of_several".
    `bounded_factor` is the ratio of rho per person to rho of other neighbours under zCDP, and also
    under pure DP for several records; for one of several, the ratio of the stated rho.
    `stated_factor` is the ratio of the stated rho where several records are charged and a person's
    change may change more.
    """

    definition: str
    parameter: Fraction
    neighbors: str = BOUNDED
    delta: Fraction = Fraction(0)
    bounded_factor: Fraction = GROUP_OF_TWO
    stated_factor: Fraction | None = None

    @property
    def bounded_rho(self) -> Fraction:
        """The rho of bounded zCDP per person that this guarantee implies, without its delta.

        Bounded zCDP: rho. Unbounded zCDP, or two records: `bounded_factor` rho. epsilon-DP implies
        epsilon^2 / 2-zCDP, and changing a record costs 2 epsilon when adding one costs epsilon, as
        changing two does when changing one costs epsilon: epsilon^2 / 2 if bounded, else
        2 epsilon^2. Several records: `bounded_factor` times the rho of one.

        >>> Guarantee("pure_dp", Fraction(1), neighbors="unbounded").bounded_rho
        Fraction(2, 1)
        """
        is_bounded = self.neighbors in (BOUNDED, ONE_OF_SEVERAL)
        if self.definition == PURE_DP and self.neighbors == SEVERAL_RECORDS:
            return self.parameter**2 / 2 * self.bounded_factor
        if self.definition == PURE_DP:
            return self.parameter**2 * (Fraction(1, 2) if is_bounded else 2)
        if self.neighbors == UNBOUNDED_OF_SEVERAL:
            return self.parameter * SAFETAB_P
        return self.parameter * (1 if is_bounded else self.bounded_factor)

    @property
    def rho_per_record(self) -> Fraction:
        """The rho of zCDP between the guarantee's own neighbours, without its delta.

        >>> Guarantee("pure_dp", Fraction(1), neighbors="unbounded").rho_per_record
        Fraction(1, 2)
        """
        return self.parameter**2 / 2 if self.definition == PURE_DP else self.parameter

    @property
    def stated_rho(self) -> Fraction:
        """As `bounded_rho`, of all records that one person's change may change."""
        if self.stated_factor is not None:
            return self.rho_per_record * self.stated_factor
        is_one = self.neighbors in (ONE_OF_SEVERAL, UNBOUNDED_OF_SEVERAL)
        return self.bounded_rho * (self.bounded_factor if is_one else 1)


def compose(guarantees: Iterable[Guarantee]) -> Guarantee:
    """The bounded zCDP guarantee per person of all the mechanisms together, deltas added.

    >>> compose([Guarantee("zcdp", Fraction(1, 2)), Guarantee("pure_dp", Fraction(1))]).parameter
    Fraction(1, 1)
    """
    rho, delta = Fraction(0), Fraction(0)
    for guarantee in guarantees:
        rho += guarantee.bounded_rho
        delta += guarantee.delta
    return Guarantee(ZCDP, rho, BOUNDED, delta)


@lru_cache(maxsize=4096)
def epsilon_tight(rho: Fraction | float, delta: Fraction | float) -> float:
    """Smallest epsilon by the conversion of rho-zCDP in [DiscreteGaussian2020] at this delta.

    The minimum over alpha > 1 of
    alpha rho + (-log delta - log(alpha - 1) + alpha log(1 - 1/alpha)) / (alpha - 1);
    every alpha gives a valid epsilon, so an inexact minimum errs on the safe side.

    >>> round(epsilon_tight(Fraction(293764, 114921), Fraction(1, 10**10)), 2)
    17.14
    """
    if rho == 0:
        return 0.0
    log_inverse_delta, of_rho = _log_inverse(delta), float(rho)

    def epsilon(log_excess: float) -> float:
        alpha, constant = _alpha_and_constant(log_excess, log_inverse_delta)
        return alpha * of_rho + constant

    return max(0.0, _minimum(epsilon)[1])


def _alpha_and_constant(log_excess: float, log_inverse_delta: float) -> tuple[float, float]:
    """alpha and c(alpha), with which rho-zCDP implies alpha rho + c(alpha) at a delta."""
    excess = math.exp(log_excess)
    alpha = 1 + excess
    log_ratio = log_excess - math.log(alpha)
    return alpha, (log_inverse_delta - log_excess + alpha * log_ratio) / excess


def epsilon_simple(rho: Fraction | float, delta: Fraction | float) -> float:
    """The bound of [ZCDP2016]: rho + 2 sqrt(rho log(1 / delta)).

    >>> round(epsilon_simple(Fraction("1.095"), Fraction(1, 10**10)), 2)
    11.14
    """
    return float(rho) + 2 * math.sqrt(float(rho) * _log_inverse(delta))


def epsilons(rho: Fraction, delta: Fraction) -> dict[str, float]:
    """Epsilon of rho-zCDP at delta, by the `tight` and by the `simple` conversion."""
    return {"tight": epsilon_tight(rho, delta), "simple": epsilon_simple(rho, delta)}


def rho_from_epsilon_simple(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The rho whose simple bound is epsilon at delta, rounded down to twelve significant digits.

    rho = (epsilon / (sqrt(L + epsilon) + sqrt(L)))^2 with L = log(1 / delta), in 60-digit decimal
    arithmetic with a margin of 1e-40 before rounding down, so that `epsilon_simple` of the result
    never exceeds epsilon.

    Raises InputRefused unless epsilon > 0 and 0 < delta < 1.

    >>> rho_from_epsilon_simple(Fraction(1), Fraction(1, 10**8))
    Fraction(8259601783, 625000000000)
    """
    _check(epsilon, delta)
    with localcontext(Context(prec=60)) as context:
        decimal_epsilon, log_inverse = _decimal(epsilon), -_decimal(delta).ln()
        roots = (log_inverse + decimal_epsilon).sqrt() + log_inverse.sqrt()
        rho = (decimal_epsilon / roots) ** 2 * (1 - Decimal("1e-40"))
        context.prec, context.rounding = 12, ROUND_FLOOR
        return Fraction(+rho)


def rho_from_epsilon_tight(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The rho whose tight bound is epsilon at delta, rounded down to twelve significant digits.

    For every alpha > 1, rho-zCDP implies epsilon = alpha rho + c(alpha) with
    c(alpha) = (log(1 / delta) - log(alpha - 1) + alpha log(1 - 1 / alpha)) / (alpha - 1), so that
    rho = (epsilon - c(alpha)) / alpha is allowed whatever alpha is. It is chosen by a search in
    floats and rounded to a fraction; rho then follows in 60-digit decimal arithmetic with a margin
    of 1e-40 before rounding down, so that the loss at that alpha never exceeds epsilon.

    Raises InputRefused unless epsilon > 0 and 0 < delta < 1.

    >>> rho = rho_from_epsilon_tight(Fraction(1), Fraction(1, 10**8))
    >>> round(epsilon_tight(rho, Fraction(1, 10**8)), 9)
    1.0
    """
    _check(epsilon, delta)
    log_inverse_delta, of_epsilon = _log_inverse(delta), float(epsilon)

    def negative_rho(log_excess: float) -> float:
        alpha, constant = _alpha_and_constant(log_excess, log_inverse_delta)
        return (constant - of_epsilon) / alpha

    at, _ = _minimum(negative_rho)
    excess = Fraction(math.exp(at)).limit_denominator(10**12)
    with localcontext(Context(prec=60)) as context:
        above, log_inverse = _decimal(excess), -_decimal(delta).ln()
        alpha = 1 + above
        constant = (log_inverse - above.ln() + alpha * (above / alpha).ln()) / above
        rho = (_decimal(epsilon) - constant) / alpha
        rho -= abs(rho) * Decimal("1e-40") + Decimal("1e-45") * (abs(constant) + 1)
        context.prec, context.rounding = 12, ROUND_FLOOR
        return Fraction(+rho)


def _decimal(value: Fraction) -> Decimal:
    """A fraction in the digits of the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _check(epsilon: Fraction, delta: Fraction) -> None:
    if epsilon <= 0:
        raise InputRefused(f"epsilon is {epsilon}; give a positive fraction")
    if not 0 < delta < 1:
        raise InputRefused(f"[privacy] delta is {delta}; give a fraction between 0 and 1")


def _minimum(function: Callable[[float], float]) -> tuple[float, float]:
    """About where a function of log(alpha - 1) that falls and then rises is least, and its value.

    The best of a grid from -16 to 60 is refined to 1e-10 by finer grids.
    """
    best, stride = min((4.0 * step for step in range(-4, 16)), key=function), 4.0
    while stride > 1e-10:
        stride /= 16
        best = min((best + step * stride for step in range(-16, 17)), key=function)
    return best, function(best)


def _log_inverse(delta: Fraction | float) -> float:
    """log(1 / delta), also for a fraction below the smallest float."""
    if isinstance(delta, Fraction):
        return math.log(delta.denominator) - math.log(delta.numerator)
    return -math.log(delta)
