"""What the certificate of the supplemental tables says: public content only, true of its plan."""

from __future__ import annotations

from ...products.certificate import BLURRED, Facts
from ...products.privacy_curves import Curves
from ..settings import SupplementalDhcSettings
from ..workload.plan import Plan


def facts_of(settings: SupplementalDhcSettings, plan: Plan, curves: Curves | None = None) -> Facts:
    """What was protected, against which change, with which noise, and what is exact."""
    noise = "without noise" if settings.privacy.infinite else "with random noise"
    return Facts(
        made=(
            "from records of persons that were joined with those of their households: people in "
            f"households, and households, were counted {noise}, and posterior means and intervals "
            "were computed from the noisy counts alone"
        ),
        public=(
            f"{BLURRED} How many people live in the households of a small group is mostly noise, "
            "as the intervals beside the estimates tell."
        ),
        noise=(words_on_noise(plan),),
        curves=curves,
    )


def words_on_noise(plan: Plan) -> str:
    """How the noise of every count follows from rho."""
    taus = ", ".join(f"{tau} in {name}" for name, tau in plan.taus.items())
    return (
        "Every count was measured with discrete Gaussian noise of variance s^2 / (2 rho), s being "
        "the most by which one person moves all counts that were measured together: 2 tau + 2 for "
        "persons, where at most tau of a household are counted, and 2 for numbers of households. "
        f"All that one person moves may be in one count. tau is {taus}."
    )
