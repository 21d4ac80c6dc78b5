"""The plan of a run of the supplemental tables: the noise of every query, cost and exact curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..ledger.accounting import UNBOUNDED, ZCDP, Guarantee
from ..ledger.exact_curve import PrivacyCurve, known_curve
from ..ledger.loss_laws import ChangedCount
from ..ledger.plan import Measure, UniversePlan
from ..noise.distributions import DISCRETE_GAUSSIAN
from ..noise.draws import Noise
from ..noise.quantiles import distribution_of
from ..runs.directory import RunDirectory
from .measures import ITERATIONS, MEASURES, columns_of, stability_of

UNIVERSE = "people_in_households"
"""The universe in the names of measurement and estimate folders, and in the ledger."""


def areas_file(run: RunDirectory) -> Path:
    """The areas by their regions of all levels, one column a level; public.

    They are written last by the ingest: where they are, all is.
    """
    return run.root / "geography" / "areas.parquet"


def make_plan(
    rhos: Mapping[tuple[str, str, str], Fraction],
    taus: Mapping[str, int],
    n_regions: Mapping[str, int],
    *,
    infinite: bool = False,
) -> UniversePlan:
    """Calibrate every query: the counts of a measure in some iterations, in all regions of a level.

    Counts that one person moves by s in all have discrete Gaussian noise of s^2 / (2 rho). The
    guarantee is for one person's record more or less, with up to two records of units. A person
    who is changed, or who moves, is one less and one more: four times the rho, by group privacy.

    Args:
        rhos: by measure, level and iterations, all positive.
        taus: by measure of persons.
        n_regions: by level.
        infinite: whether noise is switched off.
    """
    total = sum(rhos.values(), Fraction(0))
    measures = []
    for (measure, level, iterations), rho in rhos.items():
        # All that one person moves may be in one count.
        moved = stability_of(MEASURES[measure], taus.get(measure, 0)) ** 2
        n_counts = MEASURES[measure].n_cells * len(ITERATIONS[iterations])
        own = Measure(
            f"{level} {measure} {iterations}",
            None if infinite else Noise(DISCRETE_GAUSSIAN, moved / (2 * rho)),
            rho / total,
            level,
            f"{measure} {iterations}",
            moved=moved,
            areas=n_regions[level],
            answers=n_regions[level] * n_counts,
        )
        measures.append(own)
    guarantee, loss = (None, None) if infinite else (Guarantee(ZCDP, total, UNBOUNDED), total)
    plan = UniversePlan(UNIVERSE, DISCRETE_GAUSSIAN, guarantee, loss, tuple(measures))
    return replace(plan, curve=exact_curve(plan, is_bounded=True))


def measure_of(query: str) -> tuple[str, str]:
    """The measure and the iterations of a query, by its name."""
    measure, _, iterations = query.partition(" ")
    return measure, iterations


def answers_of(plan: UniversePlan, level: str, counts: np.ndarray) -> dict[str, np.ndarray]:
    """The answers to the queries of a level, among all counts of its regions `(n_regions, n)`."""
    queries = (own.query for own in plan.measures if own.level == level)
    return {query: counts[:, columns_of(*measure_of(query))] for query in queries}


def exact_curve(plan: UniversePlan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The exact curve of one person more or less, or changed if `is_bounded`; None without noise.

    The counts of a query move by its stability in all, and by twice as much where a person is
    changed. The worst such move is that of a single count (`ledger.exact_curve`); the queries'
    noise is fixed before anything is drawn, so that their worst pairs compose.
    """
    times, moved = 1 + is_bounded, dict[ChangedCount, int]()
    for own in plan.measures:
        if own.noise is None or own.moved is None:
            return None
        count = ChangedCount(distribution_of(own.noise), times * math.isqrt(own.moved))
        moved[count] = moved.get(count, 0) + 1
    return known_curve(moved, [])
