"""Random faults in runs of every product on every runner; `python -m tests.flows.random_faults`
plays the same as a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from spineflow.tasks.runs.directory import RunDirectory

from tests.conftest import SESSION
from tests.flows.exposed import Run, surrounded
from tests.flows.held_up import Fault, World
from tests.flows.random_faults import (
    FAULT,
    PRODUCTS,
    RUNNERS,
    SERVERS,
    STRIKES,
    length_of,
    schedule,
    struck,
)

N_STRIKES = 3
SCRIPT = Path(__file__).with_name("random_faults.py")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("faults"))
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def length(world: World) -> Callable[[str], int]:
    return cache(lambda product: length_of(world, product))


@pytest.mark.slow
@pytest.mark.soak(600)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_run_that_is_struck_at_random_comes_to_its_end(
    world: World, length, request: pytest.FixtureRequest, product: str, runner: str, server: str
) -> None:
    if runner == "dask":
        pytest.importorskip("prefect_dask")
    seed = request.config.stash[SESSION]["seed"]
    chance = random.Random(f"{seed} {product} {runner} {server}")
    n_files = length(product)  # Made before the run is, with whose ledger it would interfere.
    with surrounded(world, product, runner, server) as run:
        outcomes = list(schedule(run, chance, N_STRIKES, n_files))
    assert FAULT not in [how for _, how in outcomes], outcomes


@pytest.fixture
def struck_run(tmp_path: Path) -> Run:
    """A run whose command does nothing but what a test lets it do."""
    run = cast(Any, object.__new__(Run))
    run.product, run.is_own, run.before = "trips", False, {}
    run.run = RunDirectory(tmp_path)
    run.world = SimpleNamespace(folder=tmp_path, draws=lambda: ["all"])
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements" / "one.parquet").write_bytes(b"noise")
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "ledger.db").touch()
    run.judged()
    return run


def test_noise_that_is_drawn_again_is_a_fault(struck_run: Run) -> None:
    (struck_run.run.root / "measurements" / "one.parquet").write_bytes(b"other noise")
    with pytest.raises(Fault, match="one.parquet has changed"):
        struck_run.judged()


def test_a_second_charge_is_a_fault(struck_run: Run) -> None:
    cast(Any, struck_run.world).draws = lambda: ["all", "all"]
    with pytest.raises(Fault, match="charged twice"):
        struck_run.judged()


@pytest.mark.parametrize(
    ("name", "code", "told", "is_fault"),
    [
        ("killed", -9, "", False),
        ("interrupted", 1, "spineflow: The run was interrupted.", False),
        ("interrupted", 1, "Traceback", True),
        ("disk_full", 1, "", True),
        ("stopped", 1, "spineflow: The run was interrupted.", True),
        ("ledger_held", 0, "", False),
    ],
)
def test_a_command_ends_in_one_sentence_or_goes_on(
    struck_run: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    told: str,
    is_fault: bool,
) -> None:
    state: dict[str, int | None] = {"code": None}
    command = SimpleNamespace(exit_code=lambda: state["code"], ended=lambda: (code, "", told))

    def begin(**_: str) -> None:
        cast(Any, struck_run).command = command
        (struck_run.run.root / "written").touch()

    monkeypatch.setattr(struck_run, "begin", begin, raising=False)
    monkeypatch.setitem(STRIKES, name, lambda run: state.update(code=code))
    arguments = (struck_run, name, random.Random(1), 0)
    if is_fault:
        with pytest.raises(Fault):
            struck(*arguments)
    else:
        assert struck(*arguments) == ("went on" if code == 0 else "held")
