"""The queries of a run of the supplemental tables: their noise, cost and exact curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ..ledger.accounting import UNBOUNDED, ZCDP, Guarantee
from ..ledger.exact_curve import PrivacyCurve, known_curve
from ..ledger.loss_laws import ChangedCount
from ..ledger.plan import Measure, UniversePlan
from ..noise.draws import Noise
from ..noise.margins import distribution_of
from ..noise.mechanisms import DISCRETE_GAUSSIAN
from ..runs.directory import RunDirectory
from .measures import ITERATIONS, MEASURES, columns_of, margin_of, stability_of

UNIVERSE = "people_in_households"
"""The universe in the names of measurement and estimate folders, and in the ledger."""


def areas_file(run: RunDirectory) -> Path:
    """The areas by their regions of all levels, one column a level; public.

    They are written last by the ingest: where they are, all is.
    """
    return run.root / "geography" / "areas.parquet"


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
        """Its counts among an area's counts."""
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
        """Total cost of all queries."""
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


def universe_plan(plan: Plan) -> UniversePlan:
    """Noise of all queries, and its guarantee.

    The guarantee is for one person's record more or less, with up to two records of units. A person
    who is changed, or who moves, is one less and one more: four times the rho, by group privacy.
    """
    guarantee = Guarantee(ZCDP, plan.rho, UNBOUNDED) if plan.is_noisy else None
    return UniversePlan(
        UNIVERSE,
        DISCRETE_GAUSSIAN,
        guarantee,
        plan.rho if plan.is_noisy else None,
        tuple(
            Measure(
                query.part,
                query.noise,
                query.rho / plan.rho,
                query.level,
                query.query_name,
                # All that one person moves may be in one count.
                moved=query.stability**2,
                areas=query.n_regions,
                answers=query.n_answers,
            )
            for query in plan.queries
        ),
        curve=exact_curve(plan, is_bounded=True),
    )


def exact_curve(plan: Plan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The exact curve of one person more or less, or changed if `is_bounded`; None without noise.

    The counts of a query move by its stability in all, and by twice as much where a person is
    changed. The worst such move is that of a single count (`ledger.exact_curve`); the queries'
    noise is fixed before anything is drawn, so that their worst pairs compose.
    """
    if not plan.is_noisy:
        return None
    times, moved = 1 + is_bounded, dict[ChangedCount, int]()
    for query in plan.queries:
        assert query.noise is not None
        count = ChangedCount(distribution_of(query.noise), times * query.stability)
        moved[count] = moved.get(count, 0) + 1
    return known_curve(moved, [])


def margin_at(query: Query) -> float | None:
    """The margin of error of 90 % of every count of a query; None without noise."""
    return None if query.noise is None else round(margin_of(query.noise.variance), 2)
