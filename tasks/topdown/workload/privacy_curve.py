"""What a guarantee means, in points, pictures and sentences: delta over epsilon, and what a test of
one record can achieve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...ledger.accounting import compose, epsilon_simple, epsilon_tight
from ...pages.document import Figure
from ...pages.figures import line_chart
from .budget import Budget
from .costs import guarantee_of
from .exact_loss import Path, exact_curve

DELTAS = 10.0 ** np.arange(-15.0, -2.9, 0.25)
"""Values of delta at which the curve is computed."""

EXACT_DELTAS = (1e-13, 1e-10, 1e-7, 1e-4, 1e-2)
"""Exact deltas are computed at the epsilons that the tight conversion has here."""

SHOWN_ERROR = 0.01
"""How far a lower bound of epsilon may be from the truth in a picture: less than a line is wide."""

SLOPES = (0.0, 0.5, 1.0, 1.5, 2.25, 3.0)
"""Epsilons at which trade-offs are computed, in units of sqrt(2 rho)."""

LARGEST_EPSILON = 500.0
"""Epsilon whose exponential is still a double; no trade-off tells anything so far out."""

FALSE_POSITIVES = np.linspace(0.0, 1.0, 201)

FEW = 0.05
"""The share of false positives for which a sentence tells the true ones."""


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """Points of a privacy curve, arrays `(n,)`: epsilons, and delta at each of them.

    upper, lower : between which the smallest delta lies. conversion : that which rho alone gives.
    """

    epsilons: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    conversion: np.ndarray


@dataclass(frozen=True, eq=False)
class TradeOff:
    """What the best test can tell of one record, from everything that is released.

    false_negatives : their smallest share at each of `FALSE_POSITIVES`.
    told_apart : the largest probability of telling which of two records it is, of which each was
        as likely before.
    """

    false_negatives: np.ndarray
    told_apart: float


def curve_points(
    budget: Budget,
    paths: Sequence[Path] | None = None,
    deltas: Sequence[float] = EXACT_DELTAS,
) -> CurvePoints | None:
    """The curve of one changed record over `paths`, by default one without bypass, at the epsilons
    that its rho has at `deltas`; None where there is no exact curve.
    """
    curve = exact_curve(budget, paths)
    if curve is None or curve.rho == 0:
        return None
    rho = guarantee_of(budget).bounded_rho
    epsilons = [epsilon_tight(rho, float(delta)) for delta in deltas]
    return CurvePoints(
        np.array(epsilons),
        np.array([curve.delta_upper(epsilon) for epsilon in epsilons]),
        np.array([curve.delta_lower(epsilon, SHOWN_ERROR) for epsilon in epsilons]),
        np.array(deltas, dtype=float),
    )


def trade_off(budget: Budget, paths: Sequence[Path] | None = None) -> TradeOff | None:
    """What the best test can tell of one record by the exact upper bounds over `paths`, by default
    one without bypass; None where there is no exact curve.

    With false positives alpha the false negatives are at least the largest over epsilon of
    max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)); fewer epsilons only make it
    smaller. delta at an epsilon of 0 is the distance in total variation, and two records are told
    apart with a probability of at most (1 + delta) / 2.
    """
    curve = exact_curve(budget, paths)
    if curve is None:
        return None
    least = np.zeros_like(FALSE_POSITIVES)
    deltas = []
    for slope in SLOPES:
        epsilon = min(slope * math.sqrt(2 * float(curve.rho)), LARGEST_EPSILON)
        delta = curve.delta_upper(epsilon)
        deltas.append(delta)
        for line in (
            1 - delta - math.exp(epsilon) * FALSE_POSITIVES,
            math.exp(-epsilon) * (1 - delta - FALSE_POSITIVES),
        ):
            least = np.maximum(least, line)
    return TradeOff(least, (1 + deltas[0]) / 2)


def trade_offs(
    budgets: Sequence[Budget], paths: Mapping[str, Sequence[Path] | None]
) -> tuple[str, str, Figure] | None:
    """What a test can tell of one record, as two sentences and a picture, over the paths of every
    universe's spine; None where no universe has an exact curve.
    """
    found = {budget.universe: trade_off(budget, paths[budget.universe]) for budget in budgets}
    known = {universe: own for universe, own in found.items() if own is not None}
    if not known:
        return None
    series = {
        **{universe: (FALSE_POSITIVES, own.false_negatives) for universe, own in known.items()},
        "by guessing": (FALSE_POSITIVES, 1 - FALSE_POSITIVES),
    }
    title = "Errors of the best test of one record"
    x_label, y_label = "false positives", "false negatives, at least"
    svg = line_chart(series, title=title, x_label=x_label, y_label=y_label)
    figure = Figure(svg, f"{title}, by the exact curve.")
    return _told_apart(known), _suspicions(known), figure


def _told_apart(known: Mapping[str, TradeOff]) -> str:
    """The most that an adversary can learn of one record, as a sentence."""
    told = " and ".join(
        f"{_percent(own.told_apart)} % for {universe}" for universe, own in known.items()
    )
    return (
        "With at most this probability an adversary who knows all records but one, and to whom two "
        "possibilities for this one are equally likely, can tell from everything that is released "
        f"which of them is true: {told}; by guessing, with 50 %."
    )


def _suspicions(known: Mapping[str, TradeOff]) -> str:
    """How many suspicions come out at few false alarms, as a sentence."""
    at = int(np.searchsorted(FALSE_POSITIVES, FEW))
    told = " and ".join(
        f"in at most {_percent(1 - own.false_negatives[at])} of 100 for {universe}"
        for universe, own in known.items()
    )
    few = round(100 * FEW)
    return (
        "Whoever knows all records but one, and tests by everything that is released whether this "
        "one is as suspected rather than some other, with a false alarm in at most "
        f"{few} of 100 cases, is right about a suspicion that is true {told}; by guessing, in "
        f"{few}."
    )


def _percent(share: float) -> int:
    return min(100, math.ceil(100 * share))


def privacy_curve(
    budgets: Sequence[Budget], exact: Mapping[str, CurvePoints] | None = None
) -> Figure | None:
    """Delta over epsilon of every universe and of all together, by the tight conversion of zCDP.

    The composed rho is also shown by the simple bound. A universe under pure DP enters with the
    zCDP that it implies. `exact` are the points of universes whose exact curve is known, of which
    both bounds are drawn. None if there is no noise.
    """
    if any(budget.infinite for budget in budgets):
        return None
    rhos = {budget.universe: guarantee_of(budget).bounded_rho for budget in budgets}
    together = compose([guarantee_of(budget) for budget in budgets]).parameter
    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for universe, rho in rhos.items():
        series[f"{universe}, by rho {float(rho):.4g}"] = _by(epsilon_tight, rho)
        points = (exact or {}).get(universe)
        if points is not None:
            bounds = {"exactly, at most": points.upper, "exactly, at least": points.lower}
            for words, deltas in bounds.items():
                # A logarithmic axis has no place for 0.
                known = deltas > 0
                if known.any():
                    line = points.epsilons[known].tolist(), deltas[known].tolist()
                    series[f"{universe}, {words}"] = line
    if len(budgets) > 1:
        series[f"together, by rho {float(together):.4g}"] = _by(epsilon_tight, together)
    series["together, simple bound"] = _by(epsilon_simple, together)
    title = "Delta at every epsilon"
    svg = line_chart(series, title=title, x_label="epsilon", y_label="delta", log_y=True)
    return Figure(svg, f"{title}, from the noise of this run.")


def _by(
    convert: Callable[[Fraction, float], float], rho: Fraction
) -> tuple[list[float], list[float]]:
    """Epsilons by a conversion of rho, and their deltas."""
    return [convert(rho, delta) for delta in DELTAS], DELTAS.tolist()
