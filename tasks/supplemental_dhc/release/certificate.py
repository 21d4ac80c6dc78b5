"""What the certificate of the supplemental tables says: public content only, true of its plan."""

from __future__ import annotations

import math

from ...pages.document import Section, Table
from ...products.certificate import BLURRED, Facts
from ..settings import SupplementalDhcSettings
from ..workload.costs import curves_of, margin_at
from ..workload.plan import Plan


def facts_of(settings: SupplementalDhcSettings, plan: Plan) -> Facts:
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
        sections=(noise_section(plan),),
        curves=curves_of(plan) if settings.is_private else None,
    )


def noise_table(plan: Plan) -> Table:
    """rho, stability and noise of every query, with its margin of error of 90 %."""
    rows = [
        {
            "counts": query.measure,
            "level": query.level,
            "iterations": query.iterations,
            "regions": query.n_regions,
            "rho": float(query.rho),
            "moved by a person": query.stability,
            "noise s.d.": None if query.noise is None else math.sqrt(query.noise.variance),
            "90 % margin": margin_at(query),
        }
        for query in plan.queries
    ]
    return Table.of(rows)


def noise_section(plan: Plan) -> Section:
    """The noise of every query, in words and as a table."""
    taus = ", ".join(f"{tau} in {name}" for name, tau in plan.taus.items())
    return Section(
        "Noise",
        (
            "Every count was measured with discrete Gaussian noise of variance s^2 / (2 rho), s "
            "being the most by which one person moves all counts that were measured together: 2 "
            "tau + 2 for persons, where at most tau of a household are counted, and 2 for numbers "
            f"of households. tau is {taus}.",
            noise_table(plan),
        ),
    )
