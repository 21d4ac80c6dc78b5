"""Lower bounds on the epsilon of a privacy curve, which limit what upper ones may overstate."""

from __future__ import annotations

import math
from fractions import Fraction

from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import LOWER_ERROR


def epsilon_lower(curve: PrivacyCurve, delta: Fraction | float) -> float:
    """An epsilon, or 0, that no smaller one can replace: below it (epsilon, delta)-DP fails.

    It is the epsilon of one nearly worst combination, by a law around the upper bound.
    """
    upper = curve.epsilon_upper(delta)
    if upper == 0:
        return 0.0
    law = curve._grid(upper, is_upper=False, error=LOWER_ERROR).worst_law
    return curve._epsilon_by(law.delta_lower, math.nextafter(float(delta), 1.0), upper)[0]
