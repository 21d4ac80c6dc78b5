"""What the certificate of group sizes says: public content only, true of its plan."""

from __future__ import annotations

import math

from ...pages.document import Section, Table
from ...products.certificate import BLURRED, Facts
from ..settings import GroupSizesSettings
from ..workload.exact_loss import curves_of
from ..workload.plan import Plan


def facts_of(settings: GroupSizesSettings, plan: Plan) -> Facts:
    """What was protected, against which change, with which noise, and what is exact."""
    noise = "without noise" if settings.privacy.infinite else "with random noise"
    return Facts(
        made=(
            f"by the mechanism {plan.mechanism.replace('_', ' ')}: at every level the numbers of "
            f"groups by size were measured {noise}, and counts were computed from those "
            "measurements, the number of groups and public geography"
        ),
        public=(
            f"{BLURRED} A group is a household or a facility, for example. Exact is only how many "
            "groups there are in all. How many have one size in a small region is mostly noise."
        ),
        sections=(noise_section(plan),),
        curves=curves_of(plan) if settings.is_private else None,
    )


def noise_table(plan: Plan) -> Table:
    """Regions, share, sensitivity and noise of every level; those of levels measured as another
    are named in its row.
    """
    if plan.rho is None:
        headers = ("share of epsilon", "sensitivity", "scale")
    else:
        headers = ("share of rho", "squared sensitivity", "sigma^2")
    rows = []
    for level in plan.levels:
        if level.same_as is not None:
            continue
        same = "".join(f" = {o.level}" for o in plan.levels if o.same_as == level.level)
        noise = level.noise_of(plan.noise)
        parameter = None if noise is None else float(noise.parameter)
        own = zip(headers, (str(level.share), level.sensitivity, parameter), strict=True)
        deviation = None if noise is None else math.sqrt(noise.variance)
        row = {"level": level.level + same, "regions": level.n_regions, **dict(own)}
        rows.append({**row, "noise s.d.": deviation})
    return Table.of(rows)


def noise_section(plan: Plan) -> Section:
    """The noise of every level, in words and as a table."""
    noise = (
        "discrete Laplace noise of scale sensitivity / (epsilon share)"
        if plan.rho is None
        else "discrete Gaussian noise of variance squared sensitivity / (2 rho share)"
    )
    return Section(
        "Noise",
        (
            f"Every level was measured by the vector {plan.vector.replace('_', ' ')}, with {noise} "
            f"on every value. Sensitivities are {plan.calibration}.",
            noise_table(plan),
        ),
    )
