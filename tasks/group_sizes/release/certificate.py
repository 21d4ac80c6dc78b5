"""What the certificate of group sizes says: public content only, true of its plan."""

from __future__ import annotations

from ...products.certificate import BLURRED, Facts
from ...products.privacy_curves import Curves
from ..settings import GroupSizesSettings
from ..workload.plan import Plan


def facts_of(settings: GroupSizesSettings, plan: Plan, curves: Curves | None = None) -> Facts:
    """What was protected, against which change, with which noise, and what is exact."""
    how = "without noise" if settings.privacy.infinite else "with random noise"
    return Facts(
        made=(
            f"by the mechanism {plan.mechanism.replace('_', ' ')}: at every level the numbers of "
            f"groups by size were measured {how}, and counts were computed from those "
            "measurements, the number of groups and public geography"
        ),
        public=(
            f"{BLURRED} A group is a household or a facility, for example. Exact is only how many "
            "groups there are in all. How many have one size in a small region is mostly noise."
        ),
        noise=words_on_noise(plan),
        curves=curves,
    )


def words_on_noise(plan: Plan) -> tuple[str, ...]:
    """What was measured at every level, and at which levels nothing was."""
    measured = (
        f"Every level was measured by the vector {plan.vector.replace('_', ' ')}. Sensitivities "
        f"are {plan.calibration}."
    )
    same = ", ".join(f"{own.level} as {own.same_as}" for own in plan.levels if own.same_as)
    return (
        (measured, f"Levels with the same regions were measured once: {same}.")
        if same
        else (measured,)
    )
