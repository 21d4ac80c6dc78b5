"""Pictures of a guarantee: epsilon against delta, and what a test of one record can achieve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
"""Exact deltas are computed at the epsilons that the tight conversion has here; each takes some
tenths of a second."""

SLOPES = (0.0, 0.5, 1.0, 1.5, 2.25, 3.0)
"""Epsilons at which trade-offs are computed, in units of sqrt(2 rho)."""

LARGEST_EPSILON = 500.0
"""Epsilon whose exponential is still a double; no trade-off tells anything so far out."""

FALSE_POSITIVES = np.linspace(0.0, 1.0, 201)

FEW = 0.05
"""The share of false positives for which a sentence tells the true ones."""


def trade_off(budget: Budget, paths: Sequence[Path] | None = None) -> np.ndarray | None:
    """The smallest share of false negatives of any test at each of `FALSE_POSITIVES`.

    The test decides from everything that is released whether one record is the one or another. By
    the exact upper bounds over `paths`, by default one without bypass, f(alpha) is the largest over
    epsilon of max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)); fewer epsilons
    only make it smaller. None where there is no exact curve.
    """
    curve = exact_curve(budget, paths)
    if curve is None:
        return None
    least = np.zeros_like(FALSE_POSITIVES)
    for slope in SLOPES:
        epsilon = min(slope * math.sqrt(2 * float(curve.rho)), LARGEST_EPSILON)
        delta = curve.delta_upper(epsilon)
        for line in (
            1 - delta - math.exp(epsilon) * FALSE_POSITIVES,
            math.exp(-epsilon) * (1 - delta - FALSE_POSITIVES),
        ):
            least = np.maximum(least, line)
    return least


def trade_offs(
    budgets: Sequence[Budget], paths: Mapping[str, Sequence[Path]]
) -> tuple[str, Figure] | None:
    """What a test can tell of one record, as a sentence and a picture, over the paths of every
    universe's spine; None where no universe has an exact curve.
    """
    found = {budget.universe: trade_off(budget, paths[budget.universe]) for budget in budgets}
    known = {universe: least for universe, least in found.items() if least is not None}
    if not known:
        return None
    series = {
        **{universe: (FALSE_POSITIVES, least) for universe, least in known.items()},
        "by guessing": (FALSE_POSITIVES, 1 - FALSE_POSITIVES),
    }
    at = int(np.searchsorted(FALSE_POSITIVES, FEW))
    told = " and ".join(
        f"in at most {math.ceil(100 * (1 - least[at]))} of 100 for {universe}"
        for universe, least in known.items()
    )
    sentence = (
        "Whoever knows all records but one, and tests by everything that is released whether this "
        "one is as suspected rather than some other, with a false alarm in at most "
        f"{round(100 * FEW)} of 100 cases, is right about a suspicion that is true {told}; by "
        f"guessing, in {round(100 * FEW)}."
    )
    title = "Errors of the best test of one record"
    x_label, y_label = "false positives", "false negatives, at least"
    svg = line_chart(series, title=title, x_label=x_label, y_label=y_label)
    return sentence, Figure(svg, f"{title}, by the exact curve.")


def privacy_curve(budgets: Sequence[Budget], *, is_exact: bool = False) -> Figure | None:
    """Epsilon at delta of every universe and of all together, by the tight conversion of zCDP.

    The composed rho is also shown by the simple bound. A universe under pure DP enters with the
    zCDP that it implies. Where it is exact, universes have their exact upper bounds, too, on a path
    without bypass. None if there is no noise.
    """
    if any(budget.infinite for budget in budgets):
        return None
    rhos = {budget.universe: guarantee_of(budget).bounded_rho for budget in budgets}
    together = compose([guarantee_of(budget) for budget in budgets]).parameter
    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        f"{universe}, rho {float(rho):.4g}": (
            DELTAS.tolist(),
            [epsilon_tight(rho, d) for d in DELTAS],
        )
        for universe, rho in rhos.items()
    }
    for budget in budgets if is_exact else ():
        curve = exact_curve(budget)
        if curve is not None and not budget.is_pure:
            epsilons = [epsilon_tight(curve.rho, delta) for delta in EXACT_DELTAS]
            deltas = [curve.delta_upper(epsilon) for epsilon in epsilons]
            series[f"{budget.universe}, exact"] = (deltas, epsilons)
    if len(budgets) > 1:
        label = f"together, rho {float(together):.4g}"
        series[label] = (DELTAS.tolist(), [epsilon_tight(together, d) for d in DELTAS])
    series["together, simple bound"] = (
        DELTAS.tolist(),
        [epsilon_simple(together, d) for d in DELTAS],
    )
    title = "Epsilon at every delta"
    svg = line_chart(series, title=title, x_label="delta", y_label="epsilon", log_x=True)
    return Figure(svg, f"{title}, from the rho of this run.")
