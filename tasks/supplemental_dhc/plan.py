"""Measures of the tables PH1 to PH8, the rho that a margin needs, and the plan of a run.

A count that moves by at most s has with rho the variance sigma^2 = s^2 / (2 rho), and noise of that
variance is within a margin m with the probability of confidence, if m = z sigma; so
rho = s^2 z^2 / (2 m^2). As in production, z has three decimals (1.645 for 90 %), and rho six.

Each measure is a count of persons in households, or of households, by the cells of one table and by
race and origin, as PHSafe measures them for the supplemental file of the 2020 Census. Persons are
joined with the record of their unit; of a household no more than tau persons of the universe are
joined.

*Stability.* Neighbours differ by one person's record, and by up to two records of units: one unit
whose record changes has one record fewer and one more. A record of a unit that comes or goes moves
at most tau rows of the join. A person who comes or goes moves one row, and where the household has
more than tau, one that takes the place of another moves two. So persons' counts move by at most
2 tau + 2 in all, and numbers of households by at most 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist

import numpy as np

from ..ledger.accounting import UNBOUNDED, ZCDP, Guarantee
from ..ledger.exact_curve import PrivacyCurve, count_moves, known_curve
from ..ledger.plan import Measure as MeasuredQuery
from ..ledger.plan import UniversePlan
from ..noise.distributions import DISCRETE_GAUSSIAN, Noise
from ..runs.directory import RunDirectory

CONFIDENCE = Fraction(9, 10)
Z_DECIMALS, RHO_DECIMALS = 1000, 1_000_000


def quantile(confidence: Fraction) -> Fraction:
    """z, to three decimals, with which a normal deviation is within z with that probability.

    >>> quantile(Fraction(9, 10))
    Fraction(329, 200)
    """
    z = NormalDist().inv_cdf((1 + float(confidence)) / 2)
    return Fraction(round(z * Z_DECIMALS), Z_DECIMALS)


def rho_for_margin(stability: int, margin: int, confidence: Fraction = CONFIDENCE) -> Fraction:
    """rho, to six decimals, at which a count of some stability has a margin of error.

    Raises ValueError where that is 0: the margin is too wide to be a budget.

    >>> rho_for_margin(22, 68)
    Fraction(70811, 500000)
    """
    exact = Fraction(stability**2) * quantile(confidence) ** 2 / (2 * margin**2)
    rho = Fraction(round(exact * RHO_DECIMALS), RHO_DECIMALS)
    if rho == 0:
        raise ValueError(f"a margin of {margin} is wider than any budget makes it")
    return rho


def margin_of(variance: float, confidence: Fraction = CONFIDENCE) -> float:
    """The margin of error of noise of some variance."""
    return float(quantile(confidence)) * variance**0.5


EVERYBODY, RACES, ORIGINS = "*", "A-G", "H,I"
ITERATIONS: Mapping[str, tuple[str, ...]] = {
    EVERYBODY: ("*",),
    RACES: tuple("ABCDEFG"),
    ORIGINS: ("H", "I"),
}
"""Iterations that are measured together, since a record is in at most one of them: all; one race
alone from A (White) to F (some other race) and two or more races G; Hispanic H and White alone, not
Hispanic I."""

ITERATION_NAMES: Mapping[str, str] = {
    "*": "total",
    "A": "White alone",
    "B": "Black or African American alone",
    "C": "American Indian and Alaska Native alone",
    "D": "Asian alone",
    "E": "Native Hawaiian and other Pacific Islander alone",
    "F": "some other race alone",
    "G": "two or more races",
    "H": "Hispanic or Latino",
    "I": "White alone, not Hispanic or Latino",
}
"""Names of the iterations, in the order of the release."""

PERSONS, HOUSEHOLDS = "persons", "households"


@dataclass(frozen=True)
class Measure:
    """Counts of one table by its cells.

    counted : `PERSONS` or `HOUSEHOLDS`.
    n_cells : cells into which a record falls, one at most.
    iterations : keys of `ITERATIONS` by which it is counted.
    is_by_person : whether race and origin are the person's own, rather than the householder's.
    tau : the most persons of a household who are joined; 0 for households.
    """

    name: str
    counted: str
    n_cells: int
    iterations: tuple[str, ...] = tuple(ITERATIONS)
    is_by_person: bool = False
    tau: int = 0


def stability_of(measure: Measure, tau: int) -> int:
    """The most by which all counts of a measure, in iterations that exclude each other, move.

    >>> stability_of(MEASURES["PH3"], 6), stability_of(MEASURES["PH5_denom"], 0)
    (14, 2)
    """
    return 2 * tau + 2 if measure.counted == PERSONS else 2


MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("PH1_num", PERSONS, 2, tau=10),
        Measure("PH1_denom", HOUSEHOLDS, 1),
        Measure("PH2", PERSONS, 8, (EVERYBODY,), tau=10),
        Measure("PH3", PERSONS, 7, is_by_person=True, tau=6),
        Measure("PH4", PERSONS, 2, tau=10),
        Measure("PH5_denom", HOUSEHOLDS, 1),
        Measure("PH6", PERSONS, 16, (EVERYBODY,), tau=6),
        Measure("PH7", PERSONS, 3, tau=10),
        Measure("PH8_denom", HOUSEHOLDS, 2),
    )
}
"""By name, in the order of their columns. PH5 and PH8 divide the counts of PH4 and PH7."""

TRUNCATION: Mapping[str, int] = {
    name: measure.tau for name, measure in MEASURES.items() if measure.counted == PERSONS
}
"""tau of the counts of persons, as in production."""


_SIZES = {
    (name, key): measure.n_cells * len(ITERATIONS[key])
    for name, measure in MEASURES.items()
    for key in measure.iterations
}
_ENDS = dict(zip(_SIZES, accumulate(_SIZES.values()), strict=True))

N_COLUMNS = sum(_SIZES.values())
"""Counts of an area in all measures."""

COLUMNS: Mapping[tuple[str, str], slice] = {
    own: slice(_ENDS[own] - size, _ENDS[own]) for own, size in _SIZES.items()
}
"""The columns of a measure's counts in some iterations, by code and cell, in a row with the counts
of all."""


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
        own = MeasuredQuery(
            f"{level} {measure} {iterations}",
            None if infinite else Noise(DISCRETE_GAUSSIAN, moved / (2 * rho)),
            rho / total,
            level,
            f"{measure} {iterations}",
            moved=moved,
            areas=n_regions[level],
            answers=n_regions[level] * _SIZES[measure, iterations],
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
    return {query: counts[:, COLUMNS[measure_of(query)]] for query in queries}


def exact_curve(plan: UniversePlan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The exact curve of one person more or less, or changed if `is_bounded`; None without noise.

    The counts of a query move by its stability in all, and by twice as much where a person is
    changed. The worst such move is that of a single count (`ledger.exact_curve`); the queries'
    noise is fixed before anything is drawn, so that their worst pairs compose.
    """
    if plan.guarantee is None:
        return None
    moves = ((own.noise, math.isqrt(own.moved or 0)) for own in plan.measures)
    return known_curve(count_moves((noise, {(1 + is_bounded) * by: 1}) for noise, by in moves))
