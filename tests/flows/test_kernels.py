"""The announced step that compiles kernels: it compiles what runs call, and says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from spineflow.flows import kernels
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.estimation import kernels as estimation_kernels
from spineflow.tasks.topdown.estimation.kernels import (
    CALLS,
    are_compiled,
    file_name,
    wait_until_compiled,
)
from spineflow.tasks.topdown.estimation.parent import Passes, estimate_children
from spineflow.tasks.topdown.estimation.problem import (
    QueryMeasurement,
    SiblingProblem,
    rows_on_support,
)
from spineflow.tasks.topdown.estimation.rounder import RoundingPass, round_by_flow

EVERY = [kernel for kernels in CALLS.values() for kernel in kernels]


def test_examples_compile_what_estimation_calls() -> None:
    """Siblings of another schema and arrays by columns compile no further types."""
    for call in CALLS:
        call()
    assert are_compiled(seldom=True), "by the names that numba gives their files"
    compiled = [list(kernel.signatures) for kernel in EVERY]
    assert all(len(signatures) == 1 for signatures in compiled), "one example each"
    names = ("total", "hispanic * cenrace", "detailed")
    queries = {name: marginal_query(PERSONS, name) for name in names}
    rng = np.random.default_rng(1)
    cells = np.arange(40)
    measurements = {
        name: QueryMeasurement(query, rng.integers(-2, 5, (3, query.n_rows)), np.ones(3))
        for name, query in queries.items()
    }
    problem = SiblingProblem(
        ("1", "2", "3"),
        cells,
        np.repeat([0, 1], 20),
        rng.integers(0, 6, 40),
        np.zeros((3, 2), dtype=np.int64, order="F"),
        np.full((3, 2), 10**12, order="F"),
    )
    chain = (tuple(queries[name] for name in ("total", "detailed")),)
    x, _ = estimate_children("0", problem, measurements, Passes((names[:1], names[1:]), chain))
    assert (x.sum(axis=0) == problem.parent_counts).all()
    asked = tuple(rows_on_support(query, cells) for query in chain[0])
    rounded = RoundingPass(
        problem, np.asfortranarray(problem.parent_counts / 3 * np.ones((3, 1))), asked
    )
    round_by_flow(rounded)
    assert [list(kernel.signatures) for kernel in EVERY] == compiled


@pytest.fixture
def new_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where numba notes what it has compiled, of an installation that has compiled nothing."""
    monkeypatch.setattr(estimation_kernels, "_folder", lambda: tmp_path)
    return [tmp_path / file_name(kernel).replace("*", "") for kernel in EVERY]


def test_estimates_wait_for_the_process_that_compiles(
    new_installation: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    waits = (
        f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
    )
    command = f"{waits}time.sleep(0.3)\npathlib.Path({str(done)!r}).touch()"
    monkeypatch.setattr(kernels, "COMMAND", command)
    wait_until_compiled()
    assert not kernels.compile_in_background("trips"), "which estimates without them"
    assert kernels.compile_in_background("topdown")
    assert not kernels.compile_in_background("topdown"), "another run waits for the same process"
    go.touch()
    wait_until_compiled()
    assert done.exists()
    assert kernels.compile_in_background("topdown"), "that process was killed, say"
    wait_until_compiled()
    for kept in new_installation:
        kept.touch()
    assert not kernels.compile_in_background("topdown")
