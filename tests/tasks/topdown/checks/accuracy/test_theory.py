"""Predicted variances against generalised least squares on all cells of all blocks at once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.geography.levels import Geolevel, Spine
from spineflow.tasks.census.cef_2020 import CENSUS, UNITS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, noise_variance
from spineflow.tasks.topdown.checks.accuracy.subjects import (
    EntityLevel,
    answer_matrix,
    quantities_of,
)
from spineflow.tasks.topdown.checks.accuracy.theory import Prediction
from spineflow.tasks.topdown.workload.budget import Budget

PEOPLE = CENSUS.schema("persons", ("hhgq", "votingage", "hispanic"))
ASKED = {
    "total": Fraction(1, 4),
    "hhinstlevels": Fraction(1, 8),
    "votingage * hispanic": Fraction(1, 4),
    "detailed": Fraction(3, 8),
}
PARENTS = {"US": [-1], "State": [0, 0, 0], "County": [0, 1, 1, 2], "Block": [0, 0, 1, 2, 3, 3]}
STATES = ("044", "144", "045")
"""The first two are parts of one state."""


@pytest.fixture
def spine() -> Spine:
    levels = []
    for name, parent in PARENTS.items():
        n = len(parent)
        geocode = STATES if name == "State" else [f"{name}{row}" for row in range(n)]
        shares, code = (Fraction(1, 4),), np.zeros(n, dtype=np.int32)
        if name in ("County", "Block"):
            # The second county's only block hands its share over.
            shares = (Fraction(0), Fraction(1, 4), Fraction(1, 2))
            code = np.ones(n, dtype=np.int32)
            code[1 if name == "County" else 2] = 2 if name == "County" else 0
        levels.append(
            Geolevel(
                name,
                np.array(geocode, dtype=object),
                np.array(parent),
                shares,
                code,
                np.zeros(n, dtype=bool),
                np.ones(n, dtype=np.int64),
            )
        )
    rows = np.arange(len(PARENTS["Block"]))
    return Spine("optimized", tuple(levels), rows.astype(str).astype(object), rows)


def budget_of(universe: str, mechanism: str, asked: dict[str, Fraction]) -> Budget:
    return Budget(
        universe,
        mechanism,
        Fraction(5, 2),
        Fraction(1, 10**6),
        dict.fromkeys(PARENTS, Fraction(1, 4)),
        dict.fromkeys(PARENTS, asked),
    )


def dense_covariance(spine, schema, budget, possible, exact_rows) -> np.ndarray:
    """Covariance of the estimate of all cells of all blocks, (n_blocks * n_cells,) squared."""
    n_cells, n_blocks = schema.n_cells, spine.n_blocks
    information = np.zeros((n_blocks * n_cells,) * 2)
    for level in spine.geolevels:
        ancestor = spine.ancestors(level.name)
        for geounit in range(len(level)):
            share = level.plb_shares[level.plb_share_code[geounit]]
            for name, query_share in budget.query_shares[level.name].items():
                if share:
                    matrix = marginal_query(schema, name).matrix.toarray()
                    rows = np.kron((ancestor == geounit).astype(float), matrix)
                    variance = noise_variance(
                        budget.mechanism, budget.noise(share, query_share).parameter
                    )
                    information += rows.T @ rows / variance
    free = np.eye(n_blocks * n_cells)[:, possible.ravel()]
    for row in exact_rows:
        direction = row @ free
        length = np.linalg.norm(direction)
        if length > 1e-9:
            # A reflection that maps the direction to the first axis, which is then dropped.
            unit = direction / length
            basis = np.linalg.qr(np.column_stack([unit, np.eye(len(unit))]))[0]
            free = free @ basis[:, 1:]
    return free @ np.linalg.inv(free.T @ information @ free) @ free.T


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("totals_known", [True, False])
def test_variances_of_persons(spine: Spine, mechanism: str, totals_known: bool) -> None:
    budget = budget_of("persons", mechanism, ASKED)
    type_is_possible = np.array(
        [[1, 0, 0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 1, 0, 1], [1, 1, 0, 0, 0, 0, 0, 0]] * 2
    ).astype(bool)
    forbidden = PEOPLE.cells_where({"hhgq": (3,), "votingage": (0,)})
    possible = type_is_possible[:, PEOPLE.levels("hhgq")] & ~forbidden
    exact = []
    if totals_known:
        of_state = np.array([code[-2:] for code in STATES])[spine.ancestors("State")]
        exact = [
            np.kron((of_state == state).astype(float), np.ones(PEOPLE.n_cells))
            for state in ("44", "45")
        ]
    covariance = dense_covariance(spine, PEOPLE, budget, possible, exact)
    level = EntityLevel("any", frozenset(), np.array([0, 1, 1, -1, 0, 2]), 3)
    codes = [geocode[-2:] for geocode in spine.geolevel("State").geocode]
    states = np.unique(codes, return_inverse=True)[1]
    prediction = Prediction(
        schema=PEOPLE,
        budget=budget,
        spine=spine,
        type_is_possible=type_is_possible,
        type_of_cell=PEOPLE.levels("hhgq"),
        forbidden=forbidden,
        known={"State": states} if totals_known else {},
    )
    for quantity in quantities_of(PEOPLE):
        found = prediction.variances(level, prediction.product(quantity.answers))
        for column, mask in enumerate(answer_matrix(quantity.answers, PEOPLE).toarray().T):
            for entity in range(3):
                target = np.kron((level.entity == entity).astype(float), mask)
                expected = target @ covariance @ target
                assert found[entity, column] == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_variances_of_units(spine: Spine) -> None:
    """The number of housing units of every block is exact."""
    budget = budget_of("units", DISCRETE_GAUSSIAN, {"detailed": Fraction(1)})
    exact = [np.kron(np.arange(6) == block, np.ones(2)) for block in range(6)]
    covariance = dense_covariance(spine, UNITS, budget, np.ones((6, 2), dtype=bool), exact)
    level = EntityLevel("any", frozenset(), np.array([0, 0, 1, 1, 1, 2]), 3)
    prediction = Prediction(
        schema=UNITS,
        budget=budget,
        spine=spine,
        type_is_possible=np.ones((6, 1), dtype=bool),
        type_of_cell=np.zeros(2, dtype=np.int64),
        forbidden=np.zeros(2, dtype=bool),
        known={"Block": np.arange(6)},
    )
    (quantity,) = quantities_of(UNITS)
    found = prediction.variances(level, prediction.product(quantity.answers))
    for entity in range(3):
        target = np.kron((level.entity == entity).astype(float), [0.0, 1.0])
        assert found[entity] == pytest.approx([target @ covariance @ target] * 2)
