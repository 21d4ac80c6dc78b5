"""Rows of the tables PH1 to PH8, from noisy counts or from a released population.

Posteriors of counts and of averages under a flat prior on the possible values.

A noisy count y = n + X of discrete Gaussian noise, P(X = x) proportional to exp(-x^2 / 2 sigma^2),
gives the posterior of the true count n under a flat prior on n >= 0

    P(n | y) proportional to exp(-(y - n)^2 / 2 sigma^2),    n = 0, 1, 2, ...

which is summed term by term. The sum of k cells is one count of noise k sigma^2, with a flat prior
of its own: flat priors on all cells would together say that the sum is large.

An average r = a / d of persons a, of w in the whole, and of households d has a prior that is flat
on all a, w - a >= 0 and d >= 1 with smallest <= w / d <= largest. With f the posterior densities of
the parts alone, and F the distribution function of w - a, its density is

    p(r) proportional to  sum over d of  d f(d) f(r d) (F((largest - r) d) - F((smallest - r) d)),

where w = a leaves out the last factor. Counts are treated as continuous there: the noise is many
persons wide. Every interval is the shortest with its probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..answers.noisy import DPQUERY_SUFFIX, read_measurements
from ..ledger.plan import Measure, UniversePlan
from ..runs.directory import RunDirectory
from ..runs.files import read_declared
from .ingest import areas_of, count_people, read_areas, read_plan, read_population
from .plan import (
    ITERATION_NAMES,
    ITERATIONS,
    MEASURES,
    TRUNCATION,
    UNIVERSE,
    answers_of,
    make_plan,
    measure_of,
)

LARGEST_AVERAGE = 10
"""Persons of a household, or of a family, on average at most."""


@dataclass(frozen=True)
class Cells:
    """Some cells of a measure, added up."""

    measure: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table, numbered as in production.

    counted : the cells that are added up.
    of : the households that divide their number; None in a table of counts.
    rest : the cells that are not counted of a whole whose average is between `smallest` and
        `LARGEST_AVERAGE`; None where the row is the whole.
    """

    table: str
    number: int
    label: str
    counted: Cells
    of: Cells | None = None
    rest: Cells | None = None
    smallest: int = 1


def _rows(table: str, declared: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of a table, as `presets/tables.toml` declares them."""
    for number, row in enumerate(declared["rows"], start=1):
        counted, of = Cells(declared["measure"], tuple(row["cells"])), None
        if "of" in row:
            of = Cells(declared["households"], tuple(row["of"]))
        others = tuple(cell for cell in row.get("whole", ()) if cell not in row["cells"])
        rest = Cells(declared["measure"], others) if others else None
        yield Row(table, number, row["label"], counted, of, rest, declared.get("smallest", 1))


_DECLARED = read_declared(Path(__file__).parent / "presets" / "tables.toml")

ROWS = tuple(row for table, declared in _DECLARED.items() for row in _rows(table, declared))
"""All rows, table by table."""

TITLES: Mapping[str, str] = {table: declared["title"] for table, declared in _DECLARED.items()}
"""Titles of the tables."""


LEVEL = 0.9
"""Probability of the intervals."""

REACH = 9.0
"""Standard deviations of noise beyond which a posterior is 0: their probability is below 1e-18."""

POINTS, NODES = 512, 192
"""Points of an average at which its density is computed, and numbers of households over which it is
summed at each."""

WELL_KNOWN = 15.0
"""Standard deviations of a number of households from which on an average is about normal."""

ONE_AVERAGE = 1e-9
"""Averages that differ by less are taken as equal."""

LOWER_TAILS = np.linspace(0.0, 1.0, 201)
"""Shares of the probability outside an interval that may be below it."""


@dataclass(frozen=True)
class Estimate:
    """A posterior mean with the shortest interval of probability `LEVEL`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of a count: the values `first`, `first` + 1, ... have these `probability`
    entries."""

    first: int
    probability: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """The counts, `(n,)` float."""
        return self.first + np.arange(len(self.probability), dtype=float)

    @cached_property
    def cumulated(self) -> np.ndarray:
        """P(count <= n)."""
        return np.cumsum(self.probability)

    @cached_property
    def mean(self) -> float:
        """The posterior mean."""
        return float(self.counts @ self.probability)

    @cached_property
    def deviation(self) -> float:
        """The posterior standard deviation."""
        return float(np.sqrt(max((self.counts - self.mean) ** 2 @ self.probability, 0.0)))

    def density(self, at: np.ndarray) -> np.ndarray:
        """The density, counts being taken as continuous."""
        return np.interp(at, self.counts, self.probability, left=0.0, right=0.0)

    def below(self, at: np.ndarray) -> np.ndarray:
        """Probability below a value, counts being taken as continuous."""
        edges = np.append(self.first - 0.5, self.counts + 0.5)
        return np.interp(at, edges, np.append(0.0, self.cumulated), left=0.0, right=1.0)

    def estimate(self) -> Estimate:
        """The mean, and the shortest interval of counts with probability `LEVEL` at least."""
        before = np.append(0.0, self.cumulated[:-1])
        total = self.cumulated[-1]
        wanted = before + LEVEL * total
        starts = np.flatnonzero(wanted <= total)
        ends = np.searchsorted(self.cumulated, wanted[starts] * (1 - 1e-12))
        ends = np.minimum(ends, len(self.probability) - 1)
        best = int(np.argmin(ends - starts))
        low, high = self.first + int(starts[best]), self.first + int(ends[best])
        return Estimate(self.mean, float(low), float(high))


def count_posterior(noisy: int, sigma_squared: float) -> Posterior:
    """The posterior of a count from its noisy value.

    >>> posterior = count_posterior(-3, 4.0)
    >>> posterior.first, round(posterior.mean, 3)
    (0, 0.516)
    """
    mode = max(noisy, 0)
    reach = int(np.ceil(REACH * np.sqrt(sigma_squared))) + 1
    first = max(0, mode - reach)
    beyond = np.arange(first, mode + reach + 1, dtype=float) - mode
    # (n - y)^2 - (mode - y)^2, whose largest exponential is 1.
    excess = beyond * (beyond + 2.0 * (mode - noisy))
    weight = np.exp(-excess / (2.0 * sigma_squared))
    return Posterior(first, weight / weight.sum())


def average_estimate(
    counted: Posterior,
    households: Posterior,
    bounds: tuple[float, float],
    rest: Posterior | None = None,
) -> Estimate:
    """The posterior mean and interval of persons a household.

    Args:
        counted: of the persons that are averaged.
        households: of the number of households, which is at least 1.
        bounds: the least and the largest average of all persons of these households.
        rest: posterior of those persons who are not averaged; None if there are none.
    """
    step = -(-len(households.probability) // NODES)
    nodes, weight = households.counts[::step], households.probability[::step]
    smallest, largest = bounds
    least = smallest if rest is None else 0.0
    points = _points(counted, households, least, largest)
    persons = points[:, None] * nodes
    mass = weight * nodes * counted.density(persons)
    if rest is not None:
        mass = mass * (
            rest.below(largest * nodes - persons) - rest.below(smallest * nodes - persons)
        )
    density = mass.sum(axis=1)
    if not density.sum() > 0 or points[-1] - points[0] < ONE_AVERAGE:
        # Noise is so far from the possible values that only the nearest possible average is left.
        nearest = float(np.clip(counted.mean / max(households.mean, 1.0), least, largest))
        return Estimate(nearest, nearest, nearest)
    return _estimate_of(points, density)


def _points(counted: Posterior, households: Posterior, least: float, largest: float) -> np.ndarray:
    """Averages at which the density is computed: all that are possible, or those about the mean.

    Where the number of households is known well, the average is about normal, with the deviation
    that follows from both counts.
    """
    number = households.mean
    low, high = least, largest
    if number > WELL_KNOWN * households.deviation:
        mean = counted.mean / number
        reach = REACH * float(np.hypot(counted.deviation, mean * households.deviation)) / number
        # Where noise led out of the possible values, the posterior is at the limit.
        mean = float(np.clip(mean, least, largest))
        low, high = max(least, mean - reach), min(largest, mean + reach)
    return np.linspace(low, high, POINTS)


def _estimate_of(points: np.ndarray, density: np.ndarray) -> Estimate:
    """Mean and shortest interval of a density that is known at equidistant points."""
    step = points[1] - points[0]
    # Densities near the smallest float would vanish in sums; a power of two changes no digit.
    density = np.ldexp(density, -np.frexp(density.max())[1])
    area = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2.0)) * step
    total = area[-1]
    moments = density * points
    mean = ((moments[1:] + moments[:-1]) / 2.0).sum() * step / total
    tails = LOWER_TAILS * (1.0 - LEVEL) * total
    low = np.interp(tails, area, points)
    high = np.interp(tails + LEVEL * total, area, points)
    best = int(np.argmin(high - low))
    # Nearly all may be between two points, where mean and interval are not known exactly.
    mean = float(np.clip(mean, low[best], high[best]))
    return Estimate(mean, float(low[best]), float(high[best]))


SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("level", pa.string()),
        ("region", pa.string()),
        ("iteration", pa.string()),
        ("cell", pa.int64()),
        ("label", pa.string()),
        ("noisy", pa.float64()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
"""A row of the release: `noisy` is the sum of noisy counts, or the quotient of two such sums, null
where the sum of households is not positive."""

DECIMALS = 4
"""Decimals of noisy averages, estimates and limits of averages."""


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts of a region in one iteration, `(n_cells,)` by measure, and their sigma^2, 0
    without noise.
    """

    values: Mapping[str, np.ndarray]
    sigma_squared: Mapping[str, float]

    def noisy(self, cells: Cells) -> int:
        """The sum of some cells."""
        return int(self.values[cells.measure][list(cells.numbers)].sum())

    def posterior(self, cells: Cells) -> Posterior:
        """The posterior of a sum of cells that have noise."""
        sigma_squared = self.sigma_squared[cells.measure] * len(cells.numbers)
        return count_posterior(self.noisy(cells), sigma_squared)


def estimate_row(row: Row, noisy: NoisyCounts) -> tuple[float, Estimate]:
    """The noisy value of a row, NaN where there is nothing to divide by, and its estimate; without
    noise these are the same.
    """
    households = 1 if row.of is None else noisy.noisy(row.of)
    value = noisy.noisy(row.counted) / households if households > 0 else np.nan
    if not all(noisy.sigma_squared.values()):
        return value, Estimate(value, value, value)
    counted = noisy.posterior(row.counted)
    if row.of is None:
        return value, counted.estimate()
    rest = None if row.rest is None else noisy.posterior(row.rest)
    bounds = (float(row.smallest), float(LARGEST_AVERAGE))
    present = condition_on_presence(noisy.posterior(row.of))
    return value, average_estimate(counted, present, bounds, rest)


def condition_on_presence(households: Posterior) -> Posterior:
    """The posterior of a number of households, given that there is one."""
    if households.first >= 1:
        return households
    probability = households.probability[1 - households.first :]
    return Posterior(1, probability / probability.sum())


def estimate_level(run: RunDirectory, level: str) -> pa.Table:
    """All rows of a level, rounded to `DECIMALS`."""
    plan, areas = read_plan(run), read_areas(run)
    regions = areas.regions[level]
    answers = read_measurements(run.dpqueries(UNIVERSE, level), regions)
    names = [own.query for own in plan.measures if own.level == level]
    values = {name: answers[name + DPQUERY_SUFFIX].values for name in names}
    rows = _rounded(rows_of_level(plan, level, regions, values))
    return pa.Table.from_pandas(rows, SCHEMA).replace_schema_metadata(None)


def rows_of_level(
    plan: UniversePlan, level: str, regions: np.ndarray, values: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """All rows of a level with the columns `SCHEMA`: table by table, region by region, iteration
    by iteration.

    `values` are the counts `(n_regions, n)` by query of the plan.
    """
    queries = [own for own in plan.measures if own.level == level]
    found = []
    for place, region in enumerate(regions):
        for code in ITERATION_NAMES:
            noisy = noisy_counts(queries, values, place, code)
            for row in ROWS:
                if {row.counted.measure, (row.of or row.counted).measure} <= noisy.values.keys():
                    value, own = estimate_row(row, noisy)
                    names = row.table, level, str(region), code, row.number, row.label
                    found.append((*names, value, *astuple(own)))
    frame = pd.DataFrame(found, columns=SCHEMA.names)
    return frame.sort_values("table", key=lambda own: own.map([*TITLES].index), kind="stable")


def _rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with figures of `DECIMALS`, which are those nearest in decimal."""
    return rows.assign(
        **{name: [round(own, DECIMALS) for own in rows[name]] for name in SCHEMA.names[-4:]}
    )


def noisy_counts(
    queries: Sequence[Measure], values: Mapping[str, np.ndarray], place: int, code: str
) -> NoisyCounts:
    """The noisy counts of a level's region in an iteration, of every measure that has it.

    `values` are `(n_regions, n)` by query, the region at `place`.
    """
    own, sigma_squared = dict[str, np.ndarray](), dict[str, float]()
    for query in queries:
        measure, iterations = measure_of(query.query)
        codes = ITERATIONS[iterations]
        if code in codes:
            by_code = values[query.query][place].reshape(len(codes), MEASURES[measure].n_cells)
            own[measure] = by_code[codes.index(code)]
            sigma_squared[measure] = float(query.noise.parameter) if query.noise else 0.0
    return NoisyCounts(own, sigma_squared)


EVERYBODY = 100_000
"""tau beyond any household: a release need not truncate."""


def rows_of_population(folder: Path, levels: Sequence[str]) -> pd.DataFrame:
    """All rows of a population, with the columns of a release: `estimate` is the sum or average.

    `levels` are those of the block geocode; `noisy`, `low` and `high` are null, since the noise of
    the summed counts is not known here. Averages over no households are null. Raises InputRefused
    as `read_population`.
    """
    households, members, geocode = read_population(folder)
    blocks = pd.DataFrame({"block_geocode": sorted(geocode.unique())})
    areas, area_of_block = areas_of(blocks, levels)
    block = pd.Index(blocks["block_geocode"]).get_indexer(geocode)
    taus = dict.fromkeys(TRUNCATION, EVERYBODY)
    counts = count_people(households, members, area_of_block[block], taus, len(areas)).toarray()
    every = {
        (measure, level, key): Fraction(1)
        for level in levels
        for measure, own in MEASURES.items()
        for key in own.iterations
    }
    plan = make_plan(every, taus, areas.n_regions, infinite=True)
    found = [
        rows_of_level(plan, level, regions, answers_of(plan, level, areas.summed(level, counts)))
        for level, regions in areas.regions.items()
    ]
    rows = _rounded(pd.concat(found, ignore_index=True))
    # The noise of the summed counts is not known here.
    return rows.assign(noisy=np.nan, low=np.nan, high=np.nan)
