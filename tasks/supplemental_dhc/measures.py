"""Measures of the tables PH1 to PH8, and the rho that a margin of error needs.

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

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from statistics import NormalDist

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

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its iterations."""
        return tuple(code for key in self.iterations for code in ITERATIONS[key])

    @property
    def n_columns(self) -> int:
        """Number of an area's counts: those of every cell in every iteration."""
        return len(self.codes) * self.n_cells


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


*_FIRST, N_COLUMNS = accumulate((item.n_columns for item in MEASURES.values()), initial=0)
"""Counts of an area in all measures."""

FIRST_COLUMNS: Mapping[str, int] = dict(zip(MEASURES, _FIRST, strict=True))
"""The first column of every measure, in a row with the counts of all."""


def columns_of(name: str, iterations: str) -> slice:
    """The columns of a measure's counts in some iterations, by code and cell."""
    measure = MEASURES[name]
    before = measure.iterations[: measure.iterations.index(iterations)]
    first = FIRST_COLUMNS[name] + measure.n_cells * sum(len(ITERATIONS[key]) for key in before)
    return slice(first, first + measure.n_cells * len(ITERATIONS[iterations]))
