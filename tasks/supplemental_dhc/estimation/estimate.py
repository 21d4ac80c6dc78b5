"""The rows of the tables of a level: noisy values, estimates and intervals, from noisy counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa

from ...answers.noisy import DPQUERY_SUFFIX, read_measurements
from ...runs.directory import RunDirectory
from ..ingest.files import read_areas, read_plan
from ..paths import UNIVERSE
from ..workload.measures import ITERATION_NAMES, ITERATIONS, MEASURES
from ..workload.plan import Plan, Query
from ..workload.rows import LARGEST_AVERAGE, ROWS, Cells, Row
from .posterior import Estimate, Posterior, average_estimate, count_posterior

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
where that of households is not positive."""

DECIMALS = 4
"""Of noisy averages, estimates and limits of averages."""


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts of a region in one iteration, `(n_cells,)` by measure, and their sigma^2."""

    values: Mapping[str, np.ndarray]
    sigma_squared: Mapping[str, float | None]

    def noisy(self, cells: Cells) -> int:
        """The sum of some cells."""
        return int(self.values[cells.measure][list(cells.numbers)].sum())

    def posterior(self, cells: Cells) -> Posterior:
        """The posterior of a sum of cells; raises ValueError without noise."""
        sigma_squared = self.sigma_squared[cells.measure]
        if sigma_squared is None:
            raise ValueError("counts without noise have no posterior")
        return count_posterior(self.noisy(cells), sigma_squared * len(cells.numbers))

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise."""
        return all(value is not None for value in self.sigma_squared.values())


def estimated(row: Row, noisy: NoisyCounts) -> tuple[float | None, Estimate | None]:
    """The noisy value of a row, and its estimate; None where there is nothing to divide by."""
    count = noisy.noisy(row.counted)
    if row.of is None:
        if not noisy.is_noisy:
            return float(count), Estimate(count, count, count)
        return float(count), noisy.posterior(row.counted).estimate()
    households = noisy.noisy(row.of)
    value = count / households if households > 0 else None
    if not noisy.is_noisy:
        return value, None if value is None else Estimate(value, value, value)
    rest = None
    if row.whole is not None and row.whole != row.counted:
        numbers = tuple(n for n in row.whole.numbers if n not in row.counted.numbers)
        rest = noisy.posterior(Cells(row.whole.measure, numbers))
    bounds = (float(row.smallest), float(LARGEST_AVERAGE))
    households_posterior = at_least_one(noisy.posterior(row.of))
    counted = noisy.posterior(row.counted)
    return value, average_estimate(counted, households_posterior, bounds, rest)


def at_least_one(households: Posterior) -> Posterior:
    """The posterior of a number of households, given that there is one."""
    if households.first >= 1:
        return households
    probability = households.probability[1 - households.first :]
    return Posterior(1, probability / probability.sum())


def estimate_level(run: RunDirectory, level: str) -> pa.Table:
    """All rows of a level: table by table, region by region, iteration by iteration."""
    plan, areas = read_plan(run), read_areas(run)
    regions = areas.regions[level]
    answers = read_measurements(run.dpqueries(UNIVERSE, level), regions)
    names = [query.query_name for query in plan.of_level(level)]
    values = {name: answers[name + DPQUERY_SUFFIX].values for name in names}
    return rows_of_level(plan, level, regions, values)


def rows_of_level(
    plan: Plan, level: str, regions: np.ndarray, values: Mapping[str, np.ndarray]
) -> pa.Table:
    """The rows of a level, in the order of `estimate_level`, from counts `(n_regions, n)` by query
    of the plan.
    """
    tables = {name: place for place, name in enumerate(dict.fromkeys(row.table for row in ROWS))}
    found = []
    for row, region, code, value, own in sorted(
        values_of_level(plan, level, regions, values), key=lambda found: tables[found[0].table]
    ):
        numbers = (value, None, None, None) if own is None else (value, *astuple(own))
        shown = (None if number is None else round(float(number), DECIMALS) for number in numbers)
        cells = (row.table, level, region, code, row.number, row.label, *shown)
        found.append(dict(zip(SCHEMA.names, cells, strict=True)))
    return pa.Table.from_pylist(found, schema=SCHEMA)


def values_of_level(
    plan: Plan, level: str, regions: np.ndarray, values: Mapping[str, np.ndarray]
) -> Iterator[tuple[Row, str, str, float | None, Estimate | None]]:
    """Row, region, iteration, noisy value and estimate of all rows that can be made of a level's
    counts, region by region, iteration by iteration.
    """
    for place, region in enumerate(regions):
        for code in ITERATION_NAMES:
            noisy = noisy_counts(plan.of_level(level), values, place, code)
            for row in ROWS:
                if set(row.measures) <= set(noisy.values):
                    yield row, str(region), code, *estimated(row, noisy)


def noisy_counts(
    queries: tuple[Query, ...], values: Mapping[str, np.ndarray], place: int, code: str
) -> NoisyCounts:
    """The noisy counts of a level's region in an iteration, of every measure that has it.

    `values` are `(n_regions, n)` by query, the region at `place`.
    """
    own, sigma_squared = dict[str, np.ndarray](), dict[str, float | None]()
    for query in queries:
        codes = ITERATIONS[query.iterations]
        if code in codes:
            by_code = values[query.query_name][place].reshape(
                len(codes), MEASURES[query.measure].n_cells
            )
            own[query.measure] = by_code[codes.index(code)]
            noise = query.sigma_squared
            sigma_squared[query.measure] = None if noise is None else float(noise)
    return NoisyCounts(own, sigma_squared)
