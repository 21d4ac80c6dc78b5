"""Exact privacy curves of a release as figures, sentences and pictures.

A product provides the curve of one record's or person's change where it is known; the results
derived from curves are common to all products and computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ..ledger.accounting import epsilon_simple, epsilon_tight
from ..ledger.exact_curve import PrivacyCurve
from ..pages.document import Block, Figure
from ..pages.figures import line_chart

if TYPE_CHECKING:
    import pandas as pd

DELTAS = 10.0 ** np.arange(-15.0, -2.9, 0.25)
"""Values of delta at which conversions of rho are plotted."""

EXACT_DELTAS = 10.0 ** np.arange(-14.0, -1.9, 2.0)
"""Deltas whose epsilons, by the tight conversion of rho, are the points of an exact curve."""

SHOWN_ERROR, SHOWN_UPPER_ERROR = 0.05, 0.001
"""Tolerances, in epsilon, of lower and upper bounds in a picture: less than the width of a line."""

TRADE_OFF_EPSILONS = (0.0, 0.5, 1.0, 1.5, 2.25, 3.0)
"""Epsilons at which trade-offs are computed, in units of sqrt(2 rho)."""

LARGEST_EPSILON = 500.0
"""Epsilon whose exponential is still a double; no trade-off is informative so far out."""

FALSE_POSITIVES = np.linspace(0.0, 1.0, 201)
"""Rates of false positives at which trade-offs are computed."""

STATED_FALSE_POSITIVES = 0.05
"""Rate of false positives at which a sentence states the rate of true positives."""

Points = tuple[list[float], list[float]]
"""Epsilons, and delta at each of them."""


@dataclass(frozen=True)
class Curves:
    """A run's curves and rhos, by the names of its parts.

    rhos : zCDP parameters of the parts.
    exact : exact curves, None where they are not known.
    together : rho of all parts if one record is in all of them, else None.
    others, question : the records that an adversary knows, and the question about the remaining
        one; see `trade_offs`.
    whole : curves over all parts of one record's or person's change, by the name of the change;
        None where unknown. By default those of the parts.
    """

    rhos: Mapping[str, Fraction]
    exact: Mapping[str, PrivacyCurve | None]
    question: str
    others: str = "all persons but one"
    together: Fraction | None = None
    whole: Mapping[str, PrivacyCurve | None] | None = None

    @property
    def tested(self) -> dict[str, PrivacyCurve]:
        """The curves that bound tests on the whole release."""
        whole = self.exact if self.whole is None else self.whole
        return {name: curve for name, curve in whole.items() if curve is not None}

    @property
    def known(self) -> dict[str, PrivacyCurve]:
        """The exact curves that are known."""
        return {name: curve for name, curve in self.exact.items() if curve is not None}


def exact_figures(curves: Curves | None, parts: Collection[str]) -> tuple[Block, ...]:
    """Exact curves and their meaning, for a certificate, of the parts with a known epsilon."""
    known = {} if curves is None else {name: curves.known[name] for name in parts}
    if curves is None or not known:
        return ()
    return (*trade_offs(known, curves.others, curves.question), delta_chart(curves, known))


def curve_points(
    curve: PrivacyCurve, deltas: Sequence[float] | np.ndarray = EXACT_DELTAS
) -> pd.DataFrame:
    """Points of a curve below its largest loss, at the epsilons of `deltas` by the tight conversion
    of its rho; empty if no count moves.

    Columns: `epsilon`; `upper` and `lower`, bounds on the smallest delta there; `conversion`, the
    delta converted from rho alone, the sum over all counts.
    """
    import pandas as pd  # Plans are made without it.

    conversions = [(epsilon_tight(curve.rho, float(delta)), float(delta)) for delta in deltas]
    points = [
        (
            epsilon,
            curve.delta_upper(epsilon, SHOWN_UPPER_ERROR),
            curve.delta_lower(epsilon, SHOWN_ERROR),
            delta,
        )
        for epsilon, delta in conversions
        if epsilon < curve.largest_loss
    ]
    return pd.DataFrame(points, columns=["epsilon", "upper", "lower", "conversion"], dtype=float)


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Bounds on all tests about one record that use the whole release.

    false_negatives : lower bounds on their rate at each of `FALSE_POSITIVES`.
    told_apart : upper bound on the probability of identifying the true one of two equally likely
        possibilities.
    """

    false_negatives: np.ndarray
    told_apart: float


def trade_off(curve: PrivacyCurve) -> TradeOff:
    """Trade-off of the best test, from the upper bounds of a curve.

    At a false-positive rate alpha the false-negative rate is at least the largest over epsilon of
    max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)); some epsilons alone give a
    weaker bound. delta at epsilon 0 is the distance in total variation, and the true one of two
    equally likely possibilities is identified with a probability of at most (1 + delta) / 2.
    """
    least = np.zeros_like(FALSE_POSITIVES)
    deltas = []
    for multiple in TRADE_OFF_EPSILONS:
        epsilon = min(multiple * math.sqrt(2 * float(curve.rho)), LARGEST_EPSILON)
        delta = curve.delta_upper(epsilon, SHOWN_UPPER_ERROR)
        deltas.append(delta)
        for line in (
            1 - delta - math.exp(epsilon) * FALSE_POSITIVES,
            math.exp(-epsilon) * (1 - delta - FALSE_POSITIVES),
        ):
            least = np.maximum(least, line)
    return TradeOff(least, (1 + deltas[0]) / 2)


def trade_offs(
    curves: Mapping[str, PrivacyCurve], others: str, question: str
) -> tuple[str, str, Figure]:
    """The power of tests about one record, by the names of curves, as two sentences and a picture.

    `others` names the records that an adversary knows, `question` the question about the remaining
    one, such as "whether this one is as suspected rather than some other".
    """
    found = {name: trade_off(curve) for name, curve in curves.items()}
    series = {
        **{name: (FALSE_POSITIVES, own.false_negatives) for name, own in found.items()},
        "by guessing": (FALSE_POSITIVES, 1 - FALSE_POSITIVES),
    }
    title = "Errors of the best test of one record"
    x_label, y_label = "false positives", "false negatives, at least"
    svg = line_chart(series, title=title, x_label=x_label, y_label=y_label)
    few = round(100 * STATED_FALSE_POSITIVES)
    at = int(np.searchsorted(FALSE_POSITIVES, STATED_FALSE_POSITIVES))
    told = [f"{_percent(own.told_apart)} % for {name}" for name, own in found.items()]
    right = [
        f"{_percent(1 - own.false_negatives[at])} of 100 for {name}" for name, own in found.items()
    ]
    return (
        f"An adversary who knows {others}, and to whom two possibilities for this one are equally "
        "likely, identifies the true one from everything that is released with a probability of "
        f"at most {' and '.join(told)}; by guessing, of 50 %.",
        f"An adversary who knows {others}, and uses everything that is released to test "
        f"{question}, with false alarms in at most {few} of 100 cases, confirms at most this share "
        f"of true suspicions: {' and '.join(right)}; by guessing, {few} of 100.",
        Figure(svg, f"{title}, by the exact curve."),
    )


def _percent(share: float) -> int:
    return min(100, math.ceil(100 * share))


def delta_chart(curves: Curves, exact: Mapping[str, PrivacyCurve]) -> Figure:
    """Delta over epsilon of every part, by the tight conversion of its rho.

    `exact` has the exact curves of some parts, whose two bounds are both plotted. The rho of all
    parts together, or of each, is also shown by the simple bound.
    """
    series: dict[str, Points] = {}
    for name, rho in curves.rhos.items():
        series[f"{name}, by rho {float(rho):.4g}"] = _convert_rho(epsilon_tight, rho)
        series |= _curve_bounds(name, exact[name]) if name in exact else {}
    whole = curves.rhos if curves.together is None else {"together": curves.together}
    if curves.together is not None and len(curves.rhos) > 1:
        by_rho = _convert_rho(epsilon_tight, curves.together)
        series[f"together, by rho {float(curves.together):.4g}"] = by_rho
    for name, rho in whole.items():
        series[f"{name}, simple bound"] = _convert_rho(epsilon_simple, rho)
    title = "Delta at every epsilon"
    svg = line_chart(series, title=title, x_label="epsilon", y_label="delta", log_y=True)
    return Figure(svg, f"{title}, from the noise of this run.")


def _curve_bounds(name: str, curve: PrivacyCurve) -> dict[str, Points]:
    """Both bounds of an exact curve, where they are above 0."""
    points, found = curve_points(curve), {}
    for column, bound in (("upper", "at most"), ("lower", "at least")):
        above = points[points[column] > 0]
        if len(above):
            own = above["epsilon"].tolist(), above[column].tolist()
            found[f"{name}, exactly, {bound}"] = own
    return found


def _convert_rho(convert: Callable[[Fraction, float], float], rho: Fraction) -> Points:
    """Epsilons by a conversion of rho, and their deltas."""
    return [convert(rho, delta) for delta in DELTAS], DELTAS.tolist()
