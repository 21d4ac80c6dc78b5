"""The plan of a run: everything public that decides what is measured, and with which noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...noise.draws import Noise
from ...noise.mechanisms import DISCRETE_GAUSSIAN
from .measures import ITERATIONS, MEASURES, columns_of, stability_of


@dataclass(frozen=True)
class Query:
    """The counts of a measure in some iterations, in every region of a level.

    stability : the most by which all these counts move, in persons or households.
    sigma_squared : of the discrete Gaussian noise of every count, stability^2 / (2 rho), in squared
        persons or households; None without noise.
    """

    measure: str
    level: str
    iterations: str
    rho: Fraction
    stability: int
    sigma_squared: Fraction | None
    n_regions: int

    @property
    def part(self) -> str:
        """The name under which its noise is charged, and of its answers."""
        return f"{self.level} {self.query_name}"

    @property
    def query_name(self) -> str:
        """The name of its answers within the level."""
        return f"{self.measure} {self.iterations}"

    @property
    def noise(self) -> Noise | None:
        """The noise of every count, None without noise."""
        return None if self.sigma_squared is None else Noise(DISCRETE_GAUSSIAN, self.sigma_squared)

    @property
    def columns(self) -> slice:
        """Its counts among those of an area."""
        return columns_of(self.measure, self.iterations)

    @property
    def n_answers(self) -> int:
        """Counts in all regions."""
        return self.n_regions * MEASURES[self.measure].n_cells * len(ITERATIONS[self.iterations])


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    taus : by measure of persons, how many of a household are joined at most.
    levels : the levels in the order of the settings, with the number of their regions.
    """

    taus: Mapping[str, int]
    levels: Mapping[str, int]
    queries: tuple[Query, ...]

    @property
    def rho(self) -> Fraction:
        """What all queries cost together."""
        return sum((query.rho for query in self.queries), Fraction(0))

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise."""
        return all(query.sigma_squared is not None for query in self.queries)

    def of_level(self, level: str) -> tuple[Query, ...]:
        """The queries of a level."""
        return tuple(query for query in self.queries if query.level == level)


def make_plan(
    rhos: Mapping[tuple[str, str, str], Fraction],
    taus: Mapping[str, int],
    n_regions: Mapping[str, int],
    *,
    infinite: bool = False,
) -> Plan:
    """Calibrate every query.

    Args:
        rhos: by measure, level and iterations, all positive.
        taus: by measure of persons.
        n_regions: by level, in order.
        infinite: whether noise is switched off.
    """
    queries = []
    for (measure, level, iterations), rho in rhos.items():
        stability = stability_of(MEASURES[measure], taus.get(measure, 0))
        sigma_squared = None if infinite else Fraction(stability**2) / (2 * rho)
        queries.append(
            Query(measure, level, iterations, rho, stability, sigma_squared, n_regions[level])
        )
    used = {query.measure for query in queries}
    own = {name: tau for name, tau in taus.items() if name in used}
    return Plan(own, dict(n_regions), tuple(queries))
