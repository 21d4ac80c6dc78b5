"""What a guarantee of topdown means, in points, pictures and sentences; see
`products.privacy_curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ledger.accounting import compose
from ...pages.document import Figure
from ...products.privacy_curves import CurvePoints, Curves, delta_chart
from .budget import Budget
from .costs import guarantee_of
from .exact_loss import exact_curve

OTHERS = "all records but one"
QUESTION = "whether this one is as suspected rather than some other"


def curves_of(budgets: Sequence[Budget]) -> Curves | None:
    """The curves of every universe where no geounit is bypassed; None if there is no noise.

    A universe under pure DP has the rho of zCDP that it implies.
    """
    if any(budget.infinite for budget in budgets):
        return None
    return Curves(
        {budget.universe: guarantee_of(budget).bounded_rho for budget in budgets},
        {budget.universe: exact_curve(budget) for budget in budgets},
        QUESTION,
        OTHERS,
        compose([guarantee_of(budget) for budget in budgets]).parameter,
    )


def privacy_curve(
    budgets: Sequence[Budget], exact: Mapping[str, CurvePoints] | None = None
) -> Figure | None:
    """Delta over epsilon of every universe and of all together, by the tight conversion of zCDP.

    `exact` are the points of universes whose exact curve is known. None if there is no noise.
    """
    curves = curves_of(budgets)
    return None if curves is None else delta_chart(curves.rhos, exact or {}, curves.together)
