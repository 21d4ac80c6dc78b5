"""The curve of epsilon against delta that a run's rho implies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ledger.accounting import compose, epsilon_simple, epsilon_tight
from ...pages.document import Figure
from ...pages.figures import line_chart
from .budget import Budget
from .costs import guarantee_of

DELTAS = 10.0 ** np.arange(-15.0, -2.9, 0.25)
"""Values of delta at which the curve is computed."""


def privacy_curve(budgets: Sequence[Budget]) -> Figure | None:
    """Epsilon at delta of every universe and of all together, by the tight conversion of zCDP.

    The composed rho is also shown by the simple bound. A universe under pure DP enters with the
    zCDP that it implies. None if there is no noise.
    """
    if any(budget.infinite for budget in budgets):
        return None
    rhos = {budget.universe: guarantee_of(budget).bounded_rho for budget in budgets}
    together = compose([guarantee_of(budget) for budget in budgets]).parameter
    series = {
        f"{universe}, rho {float(rho):.4g}": (DELTAS, [epsilon_tight(rho, d) for d in DELTAS])
        for universe, rho in rhos.items()
    }
    if len(budgets) > 1:
        label = f"together, rho {float(together):.4g}"
        series[label] = (DELTAS, [epsilon_tight(together, d) for d in DELTAS])
    series["together, simple bound"] = (DELTAS, [epsilon_simple(together, d) for d in DELTAS])
    title = "Epsilon at every delta"
    svg = line_chart(series, title=title, x_label="delta", y_label="epsilon", log_x=True)
    return Figure(svg, f"{title}, from the rho of this run.")
