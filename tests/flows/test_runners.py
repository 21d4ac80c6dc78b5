"""The same DAG gives the same files as a flow on Dask's workers and as functions in one process.

Threads and processes are in `test_estimators`, and on several shards.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import SETTINGS
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


def test_a_cluster_gives_what_processes_give(county: Path, tmp_path: Path) -> None:
    """Three worker processes that a scheduler has, as on several machines, and their record."""
    distributed = pytest.importorskip("distributed")
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS.replace("input/", f"{county}/"), encoding="utf-8")

    def run(name: str, *options: str) -> RunDirectory:
        overrides = [part for option in ("privacy.seed=7", *options) for part in ("--set", option)]
        folder = tmp_path / name
        assert main(["run", "topdown", str(settings), "--run-dir", str(folder), *overrides]) == 0
        return RunDirectory(folder)

    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = f"run.dask_address={cluster.scheduler_address}"
        on_cluster = run("cluster", "run.runner=dask", "run.workers=3", address)
    on_processes = run("processes", "run.runner=processes", "run.workers=2")
    assert digests(on_cluster) == digests(on_processes)
    workers = {task.worker for task in tasks_of(read(on_cluster)).values()}
    assert len(workers) == 3


def digests(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of what `made` gives."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in made(run).items()}


def test_dask_gives_what_one_process_gives(county: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS.replace("input/", f"{county}/"), encoding="utf-8")

    def run(name: str, *options: str) -> dict[str, bytes]:
        overrides = [part for option in ("privacy.seed=7", *options) for part in ("--set", option)]
        folder = tmp_path / name
        assert main(["run", "topdown", str(settings), "--run-dir", str(folder), *overrides]) == 0
        return made(RunDirectory(folder))

    on_dask = run("dask", "run.runner=dask", "run.workers=2")
    with stages_in_process():
        here = run("here")
    assert on_dask == here
    assert len([name for name in here if "release/mdf_" in name]) == 4
