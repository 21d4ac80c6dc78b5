"""The same DAG gives the same files as a flow on Dask's workers and as functions in one process.

Threads and processes are in `test_estimators`, and on several shards.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import DEMOS
from spineflow.flows.runners import local_cluster
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.work import read, tasks_of

from tests.flows.in_process import stages_in_process

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.slow]


def made(run: RunDirectory) -> dict[str, bytes]:
    """Noisy measurements, estimates and release, but for the certificate, which tells the time."""
    return {
        path.relative_to(run.root).as_posix(): path.read_bytes()
        for folder in ("measurements", "estimates", "release")
        for path in (run.root / folder).rglob("*.*")
        if path.stem != "certificate"
    }


@pytest.mark.parametrize("is_told", [False, True])
def test_dask_workers_say_no_more_than_the_command_of_logs_that_could_not_be_sent(
    monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """Beside the sentence of a run whose server is gone, each wrote two lines."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(logging, "raiseExceptions", is_told)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with local_cluster(**options) as cluster, distributed.Client(cluster) as client:
        told = client.run(lambda: __import__("logging").raiseExceptions)
    assert list(told.values()) == [is_told]


def test_dask_gives_what_one_process_gives(county: Path, tmp_path: Path) -> None:
    """A cluster of the run's own; one that a scheduler has, as on several machines, with two
    worker processes, of which the record tells; and no cluster at all.
    """
    distributed = pytest.importorskip("distributed")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        (DEMOS / "topdown.toml").read_text().replace("input/", f"{county}/"), encoding="utf-8"
    )

    def run(name: str, *options: str) -> RunDirectory:
        overrides = [part for option in ("privacy.seed=7", *options) for part in ("--set", option)]
        folder = tmp_path / name
        assert main(["run", "topdown", str(settings), "--run-dir", str(folder), *overrides]) == 0
        return RunDirectory(folder)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = f"run.dask_address={cluster.scheduler_address}"
        on_cluster = run("cluster", "run.runner=dask", "run.workers=2", address)
    workers = {task.worker for task in tasks_of(read(on_cluster)).values()}
    assert len(workers) == 2
    on_dask = run("dask", "run.runner=dask", "run.workers=1")
    with stages_in_process():
        here = run("here")
    assert made(on_cluster) == made(here)
    assert made(on_dask) == made(here)
    assert len([name for name in made(here) if "release/mdf_" in name]) == 4
