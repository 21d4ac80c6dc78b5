"""The smallest siblings that the compiled kernels of the estimation take, to compile them early.

Numba compiles a kernel when it is first called with arguments of some types. The kernels' types are
the same in every run, so that a call for two children and two cells compiles everything that the
largest run needs. The calls are separate, so that several processes can make them at once.
"""

from __future__ import annotations

import numpy as np

from ...census.cef_2020 import cef_schema
from ...census.queries import marginal_query
from . import area_kernels
from .exchange import exchange_records
from .least_squares import PassProblem
from .problem import NO_BOUND, Pins, QueryMeasurement, SiblingProblem, rows_on_support
from .rounder import RoundingPass, round_by_flow

SCHEMA = cef_schema("units", ("occupancy",))
QUERIES = ("total", "detailed")
SHAPE = (2, SCHEMA.n_cells)


def active_sets() -> None:
    """The alternating direction method and the active-set method."""
    _pass_problem().solve()


def newton_steps() -> None:
    """Newton's method on the rows' multipliers, which hard problems and wide ones need."""
    _pass_problem().solve_by_rows()


def flows() -> None:
    """The rounder's network flow."""
    problem, _ = _siblings()
    round_by_flow(RoundingPass(problem, np.full(SHAPE, 1.5), _labels()))


def exchanges() -> None:
    """The exchange after the rounder."""
    problem, _ = _siblings()
    x = np.array([[2, 1], [1, 2]], dtype=np.int64)
    exchange_records(problem, np.full(SHAPE, 1.5), x, _labels()[:1], _labels())


def areas() -> None:
    """A step of the covariances of areas off the spine."""
    none, matrices = np.zeros(1, dtype=np.int64), np.ones((5, 1, 1, 1, 1))
    area_kernels.add(matrices[0], none, matrices[1])
    area_kernels.add_parts(matrices[0], none, none, none, *matrices[1:4])
    area_kernels.add_regression(none, none, none, *matrices[:3])
    area_kernels.add_change(none, none, none, *matrices[:4])


CALLS = (active_sets, newton_steps, flows, areas, exchanges)
"""All calls, the longest to compile first."""
SELDOM = (newton_steps, exchanges)
"""Calls hardly ever needed in runs with few marginal queries; see `kernels.SELDOM`."""


def _siblings() -> tuple[SiblingProblem, list[QueryMeasurement]]:
    """Two children of a parent with three records in every cell, and noisy answers."""
    measured = [
        QueryMeasurement(query, np.full((2, query.n_rows), 3, dtype=np.int64), np.ones(2))
        for query in (marginal_query(SCHEMA, name) for name in QUERIES)
    ]
    cells = np.arange(SCHEMA.n_cells)
    low, high = (np.full((2, 1), bound, dtype=np.int64) for bound in (0, NO_BOUND))
    counts = np.full(SCHEMA.n_cells, 3, dtype=np.int64)
    return SiblingProblem(("0", "1"), cells, np.zeros_like(cells), counts, low, high), measured


def _labels() -> list[np.ndarray]:
    problem, measured = _siblings()
    return [rows_on_support(asked.query, problem.cells) for asked in measured]


def _pass_problem() -> PassProblem:
    problem, measured = _siblings()
    return PassProblem.build(problem, measured, _labels(), Pins())
