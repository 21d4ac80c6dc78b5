"""The announced step that compiles kernels: it compiles what runs call, and says so."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from spineflow.flows import kernels
from spineflow.flows.cli import main
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.estimation import example
from spineflow.tasks.topdown.estimation.parent import Passes, estimate_children
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement, SiblingProblem


def dispatcher(name: str):
    module, function = name.split(".")
    return getattr(import_module(f"spineflow.tasks.topdown.estimation.{module}"), function)


def test_examples_compile_what_estimation_calls() -> None:
    """Siblings of another schema, without a parent, under several passes: no further types."""
    for call in example.CALLS:
        call()
    compiled = {name: list(dispatcher(name).signatures) for name in kernels.KERNELS}
    assert all(len(signatures) == 1 for signatures in compiled.values()), "one example each"
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
        np.zeros(40, dtype=np.int64),
        rng.integers(0, 6, 40),
        np.zeros((3, 1), dtype=np.int64),
        np.full((3, 1), 10**12),
    )
    chain = (tuple(queries[name] for name in ("total", "detailed")),)
    x, _ = estimate_children("0", problem, measurements, Passes((names[:1], names[1:]), chain))
    assert (x.sum(axis=0) == problem.parent_counts).all()
    assert {name: list(dispatcher(name).signatures) for name in kernels.KERNELS} == compiled


def test_kernels_are_known_by_what_numba_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not kernels.are_compiled()
    for name in kernels.KERNELS:
        kept = Path(dispatcher(name)._cache._cache_file._index_path)
        assert kept.name.startswith(f"{name}-"), "as numba names its files"
        (tmp_path / kept.name).touch()
    assert kernels.are_compiled()
    (tmp_path / kept.name).unlink()
    assert not kernels.are_compiled()


def test_the_command_says_what_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[int | None] = []
    monkeypatch.setattr(kernels, "compile_kernels", made.append)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert main(["compile", "--processes", "1"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "once per installation" in first and last.startswith("Kernels are compiled: ")
    assert made == [1]
