"""The noise of every query of the supplemental tables, as certificate, report and commands tell."""

from __future__ import annotations

import math

from ...pages.document import NONE, Section, Table
from ..workload.costs import margin_at
from ..workload.plan import Plan


def noise_table(plan: Plan) -> Table:
    """rho, stability and noise of every query, with its margin of error of 90 %."""
    headers = ("counts", "level", "iterations", "regions", "rho", "moved by a person")
    rows = tuple(
        (
            query.measure,
            query.level,
            query.iterations,
            query.n_regions,
            float(query.rho),
            query.stability,
            NONE if query.noise is None else math.sqrt(query.noise.variance),
            NONE if (margin := margin_at(query)) is None else margin,
        )
        for query in plan.queries
    )
    return Table((*headers, "noise s.d.", "90 % margin"), rows)


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
