"""Slowly compiled kernels of the estimation, and the state of their compilation.

Numba caches compiled kernels next to the modules, or in NUMBA_CACHE_DIR, and every later process
loads them from there. A process that compiles them holds a lock next to the cache; estimates on the
same machine wait for it rather than compile them again.

Numba compiles a kernel when it is first called with arguments of some types. The kernels' types are
the same in every run, so that a call for the smallest siblings, two children and two cells,
compiles everything that the largest run needs. The calls are separate, so that several processes
can make them at once.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ...census.cef_2020 import CENSUS
from ...census.queries import marginal_query
from . import active_set, admm, dual_newton, exchange, network_flow
from .exchange import exchange_records
from .least_squares import PassProblem
from .problem import NO_BOUND, Pins, QueryMeasurement, SiblingProblem, rows_on_support
from .rounder import RoundingPass, round_by_flow


def are_compiled(*, seldom: bool = False) -> bool:
    """Whether kernels were compiled before, by numba's cache files; also those that runs use only
    `seldom`, if requested."""
    folder = _folder()
    calls = [call for call in CALLS if seldom or call not in SELDOM]
    return all(any(folder.glob(file_name(one))) for call in calls for one in CALLS[call])


def file_name(kernel: Any) -> str:
    """Pattern of the name by which numba keeps the index of a kernel for this Python."""
    code, module = kernel.py_func.__code__, kernel.__module__.rpartition(".")[2]
    version = "py{}{}".format(*sys.version_info)
    return f"{module}.{kernel.__name__}-{code.co_firstlineno}.{version}*.nbi"


def compiling_lock() -> Path:
    """The file that is locked while a process of this machine compiles the kernels."""
    return _folder() / "spineflow-compiling.lock"


def wait_until_compiled() -> None:
    """Wait as long as another process compiles the kernels; return at once where none does."""
    if are_compiled() or not compiling_lock().exists():
        return
    with compiling_lock().open() as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)


def _folder() -> Path:
    """Where numba keeps the kernels of this package."""
    return Path(str(network_flow.solve.stats.cache_path))


SCHEMA = CENSUS.schema("units", ("occupancy",))
QUERIES = ("total", "detailed")
SHAPE = (2, SCHEMA.n_cells)


def active_sets() -> None:
    """The alternating direction method and the active-set method."""
    PassProblem.build(*_siblings(), Pins()).solve()


def newton_steps() -> None:
    """Newton's method on the rows' multipliers, which hard problems and wide ones need."""
    PassProblem.build(*_siblings(), Pins()).solve_by_rows()


def flows() -> None:
    """The rounder's network flow."""
    problem, _, labels = _siblings()
    round_by_flow(RoundingPass(problem, np.full(SHAPE, 1.5), labels))


def exchanges() -> None:
    """The exchange after the rounder."""
    problem, _, labels = _siblings()
    x = np.array([[2, 1], [1, 2]], dtype=np.int64)
    exchange_records(problem, np.full(SHAPE, 1.5), x, labels[:1], labels)


def _siblings() -> tuple[SiblingProblem, list[QueryMeasurement], list[np.ndarray]]:
    """Two children of a parent with three records in every cell, noisy answers, and the row of each
    cell in them."""
    measured = [
        QueryMeasurement(query, np.full((2, query.n_rows), 3, dtype=np.int64), np.ones(2))
        for query in (marginal_query(SCHEMA, name) for name in QUERIES)
    ]
    cells = np.arange(SCHEMA.n_cells)
    low, high = (np.full((2, 1), bound, dtype=np.int64) for bound in (0, NO_BOUND))
    counts = np.full(SCHEMA.n_cells, 3, dtype=np.int64)
    problem = SiblingProblem(("0", "1"), cells, np.zeros_like(cells), counts, low, high)
    return problem, measured, [rows_on_support(asked.query, cells) for asked in measured]


CALLS = {
    active_sets: (admm.approach, admm.first_point, active_set._iterate),
    newton_steps: (dual_newton._rounds,),
    flows: (network_flow.solve,),
    exchanges: (exchange._exchange,),
}
"""Calls, the longest to compile first, and the kernels of each that compile slowest; all that these
call is compiled with them."""
SELDOM = (newton_steps, exchanges)
"""Calls hardly ever needed in runs with few marginal queries."""
