"""Random siblings with known truth, and a zoo of shapes that solvers get wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, QueryMeasurement, SiblingProblem

SMALL = CENSUS.schema("persons", ("hhgq", "votingage", "hispanic"))
UNITS = CENSUS.schema("units", ("occupancy",))
QUERIES = {"total": 8.0, "hhgq": 0.5, "votingage * hispanic": 0.25, "detailed": 1.0}


@dataclass(frozen=True)
class Siblings:
    """A problem, its measurements by query, and the histograms `(c, k)` they were taken of."""

    problem: SiblingProblem
    measurements: dict
    truth: np.ndarray
    schema: Schema = SMALL


def siblings(
    seed: int,
    n_children: int = 5,
    *,
    schema: Schema = SMALL,
    queries=QUERIES,
    mean: float = 3.0,
    noise: float = 2.0,
    scale: np.ndarray | None = None,
    is_root: bool = False,
    share_empty: float = 0.6,
) -> Siblings:
    """Poisson counts with many empty cells; facilities bound group-quarters types from below."""
    rng = np.random.default_rng(seed)
    is_typed = "hhgq" in schema.attributes
    type_of_cell = schema.levels("hhgq") if is_typed else np.zeros(schema.n_cells, dtype=np.int64)
    n_types = int(type_of_cell.max()) + 1
    full = rng.poisson(mean, (n_children, schema.n_cells))
    full[rng.random(full.shape) < share_empty] = 0
    if is_typed:
        full[:, np.isin(type_of_cell, rng.choice(np.arange(1, 8), 3))] = 0
    full[:, type_of_cell == 0] += rng.poisson(1.0, (n_children, int((type_of_cell == 0).sum())))
    of_type = np.stack([full[:, type_of_cell == t].sum(1) for t in range(n_types)], 1)
    lower = np.where(of_type > 0, rng.integers(0, np.maximum(of_type, 1) + 1), 0)
    upper = np.where(of_type > 0, NO_BOUND, 0)
    lower[:, 0], upper[:, 0] = 0, NO_BOUND
    cells = np.arange(schema.n_cells) if is_root else np.flatnonzero(full.sum(0))
    scale = np.ones(n_children) if scale is None else scale
    measurements = {}
    for name, precision in queries.items():
        query = marginal_query(schema, name)
        answers = query.answer(full)
        noisy = answers + np.rint(rng.normal(0, noise / precision**0.5, answers.shape))
        measurements[query.name] = QueryMeasurement(
            query, noisy.astype(np.int64), precision * scale
        )
    problem = SiblingProblem(
        [f"{seed % 100:02d}{child:03d}" for child in range(n_children)],
        cells,
        type_of_cell[cells],
        None if is_root else full[:, cells].sum(0),
        lower,
        upper,
    )
    return Siblings(problem, measurements, full[:, cells], schema)


def _with(made: Siblings, **changes) -> Siblings:
    return replace(made, problem=replace(made.problem, **changes))


def _of_type(made: Siblings) -> np.ndarray:
    n_types = made.problem.lower.shape[1]
    return np.stack(
        [made.truth[:, made.problem.type_of_cell == t].sum(1) for t in range(n_types)], 1
    )


def _precision(made: Siblings, name: str, precision: np.ndarray) -> Siblings:
    measurement = replace(made.measurements[name], precision=precision)
    return replace(made, measurements={**made.measurements, name: measurement})


def _zoo() -> dict[str, Siblings]:
    plain = siblings(1)
    zoo = {"plain": plain, "many children": siblings(2, 40, noise=5.0)}
    zoo["one child"] = siblings(3, 1)
    zoo["one child at the root"] = siblings(4, 1, is_root=True)
    zoo["siblings without a parent"] = siblings(5, 4, is_root=True)
    zoo["large noise"] = siblings(6, noise=40.0)
    zoo["bypassed siblings"] = siblings(7, 6, scale=np.array([1, 2.5, 1, 7, 7, 0.1]))
    mixed = siblings(8, 4)
    zoo["other ratios of precisions"] = _precision(
        mixed, "detailed", np.array([1.0, 0.5, 2.0, 2.0])
    )
    unmeasured = siblings(9, 3)
    for name, measurement in unmeasured.measurements.items():
        unmeasured = _precision(unmeasured, name, measurement.precision * np.array([1.0, 0, 1]))
    zoo["a child without measurements"] = unmeasured
    no_slack = siblings(10)
    of_type = _of_type(no_slack)
    zoo["bounds without slack"] = _with(no_slack, lower=of_type, upper=of_type)
    tight = siblings(11)
    of_type = _of_type(tight)
    zoo["lower bounds tight"] = _with(tight, lower=of_type, upper=0 * of_type + NO_BOUND)
    zoo["upper bounds tight"] = _with(tight, lower=0 * of_type, upper=of_type)
    grouped = siblings(12, 5)
    group = np.array([0, 1, 1, 0, 2])
    totals = np.bincount(group, grouped.truth.sum(1)).astype(np.int64)
    zoo["state totals"] = _with(grouped, grouped_totals=(group, totals))
    units = siblings(13, 6, schema=UNITS, queries={"detailed": 1.0}, share_empty=0.0)
    zoo["units"] = _with(units, grouped_totals=(np.arange(6), units.truth.sum(1)))
    equal = siblings(14, 4)
    zoo["equal answers"] = replace(
        equal,
        measurements={
            name: replace(m, values=np.full_like(m.values, 2))
            for name, m in equal.measurements.items()
        },
    )
    zoo["single cell"] = siblings(15, 3, schema=UNITS, queries={"detailed": 1.0})
    single = zoo["single cell"]
    zoo["single cell"] = replace(
        single,
        problem=replace(
            single.problem,
            cells=single.problem.cells[:1],
            type_of_cell=single.problem.type_of_cell[:1],
            parent_counts=single.problem.parent_counts[:1],
        ),
        truth=single.truth[:, :1],
    )
    zoo["coarse queries only"] = siblings(16, 4, queries={"total": 1.0, "hhgq": 2.0})
    zoo["huge counts"] = siblings(17, 3, mean=1e8, noise=1e4)
    zoo["exact answers"] = siblings(18, 6, noise=0.0)
    return zoo


ZOO = _zoo()


def pytest_generate_tests(metafunc):
    if "made" in metafunc.fixturenames:
        metafunc.parametrize("made", list(ZOO.values()), ids=list(ZOO))


@pytest.fixture(scope="session")
def make_siblings():
    """The function that makes random siblings."""
    return siblings
