"""The noise of every level of a group-sizes run, as certificate, report and commands show it."""

from __future__ import annotations

import math

from ...pages.document import NONE, Section, Table
from ..workload.plan import Plan


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
        parameter = NONE if noise is None else float(noise.parameter)
        deviation = NONE if noise is None else math.sqrt(noise.variance)
        own = (level.n_regions, str(level.share), level.sensitivity, parameter, deviation)
        rows.append((level.level + same, *own))
    return Table(("level", "regions", *headers, "noise s.d."), tuple(rows))


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
