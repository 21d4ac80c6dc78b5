"""What a guarantee of topdown means, in points, pictures and sentences; see
`products.privacy_curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...ledger.accounting import compose
from ...ledger.exact_curve import PrivacyCurve
from ...pages.document import Figure
from ...products import privacy_curves as shared
from ...products.privacy_curves import EXACT_DELTAS, CurvePoints, Curves
from .budget import Budget
from .costs import guarantee_of
from .exact_loss import Path, exact_curve

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


def curve_points(
    budget: Budget,
    paths: Sequence[Path] | None = None,
    deltas: Sequence[float] | np.ndarray = EXACT_DELTAS,
) -> CurvePoints | None:
    """The curve of one changed record over `paths`, by default one without bypass, at the epsilons
    that its rho has at `deltas`; None where there is no exact curve.
    """
    curve = exact_curve(budget, paths)
    return None if curve is None else shared.curve_points(curve, deltas)


def trade_offs(
    budgets: Sequence[Budget], paths: Mapping[str, Sequence[Path] | None]
) -> tuple[str, str, Figure] | None:
    """What a test can tell of one record, as two sentences and a picture, over the paths of every
    universe's spine; None where no universe has an exact curve.
    """
    known: dict[str, PrivacyCurve] = {}
    for budget in budgets:
        curve = exact_curve(budget, paths[budget.universe])
        if curve is not None:
            known[budget.universe] = curve
    return shared.trade_offs(known, OTHERS, QUESTION) if known else None


def privacy_curve(
    budgets: Sequence[Budget], exact: Mapping[str, CurvePoints] | None = None
) -> Figure | None:
    """Delta over epsilon of every universe and of all together, by the tight conversion of zCDP.

    `exact` are the points of universes whose exact curve is known. None if there is no noise.
    """
    curves = curves_of(budgets)
    return None if curves is None else shared.delta_chart(curves.rhos, exact or {}, curves.together)
