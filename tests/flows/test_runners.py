"""The same DAG gives the same files as a flow on Dask's workers and as functions in one process.

Threads, and topdown's processes, are in `test_estimators`, and on several shards.
"""

from __future__ import annotations

import os
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import DEMOS
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.ledger.caps import Caps, set_caps, summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, read_tasks, remove_derived
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county

from tests.flows.in_process import judge_once_for_good, stages_in_process, uncompared


def made(run: RunDirectory) -> dict[str, bytes]:
    """Noisy measurements, estimates and release, but for the certificate, which tells the time."""
    return {
        path.relative_to(run.root).as_posix(): path.read_bytes()
        for folder in ("measurements", "estimates", "release")
        for path in (run.root / folder).rglob("*.*")
        if path.stem != "certificate"
    }


def run_of(product: str, settings: Path, name: str, *options: str) -> RunDirectory:
    overrides = [part for option in ("privacy.seed=7", *options) for part in ("--set", option)]
    folder = settings.parent / name
    assert main(["run", product, str(settings), "--run-dir", str(folder), *overrides]) == 0
    return RunDirectory(folder)


def workers_of(run: RunDirectory) -> set[int]:
    """The processes that did the work of a run."""
    return {int(task.worker.rpartition(":")[2]) for task in read_tasks(run).values()}


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.slow
@pytest.mark.soak(25)
def test_dask_gives_what_one_process_gives(tmp_path: Path) -> None:
    """On a cluster that a scheduler has, as on several machines, with two worker processes, of
    which the record tells; and in this process.
    """
    distributed = pytest.importorskip("distributed")
    settings = tmp_path / "settings.toml"
    settings.write_text((DEMOS / "topdown.toml").read_text(), encoding="utf-8")
    generate_county(tmp_path / "input", persons=FEWEST_PERSONS, seed=3)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as client:
            client.run(judge_once_for_good)
        options = (f"run.dask_address={cluster.scheduler_address}", "run.workers=2")
        with uncompared():  # Tasks take it with them.
            on_cluster = run_of("topdown", settings, "cluster", "run.runner=dask", *options)
        processes = {nanny.pid for nanny in cluster.workers.values()}
    # Which of the two does what is the scheduler's to decide.
    workers = workers_of(on_cluster)
    assert len(processes) == 2 and workers and workers <= processes
    with stages_in_process(judged_twice=False), uncompared():
        here = run_of("topdown", settings, "here")
    assert made(on_cluster) == made(here)
    assert len([name for name in made(here) if "release/mdf_" in name]) == 4


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.slow
@pytest.mark.parametrize("runner", [pytest.param("dask", marks=pytest.mark.soak(20)), "processes"])
def test_workers_of_the_run_s_own_give_what_one_process_gives(runner: str, tmp_path: Path) -> None:
    """A cluster, and processes; which they are concerns no product: this one takes least time."""
    if runner == "dask":
        pytest.importorskip("distributed")
    settings = write_dataset(tmp_path, census_like(groups=400, counties=4, states=2, largest=8))
    with stages_in_process(judged_twice=False):
        here = run_of("group-sizes", settings, "here")
    assert made(here)
    options = (f"run.runner={runner}", "run.workers=1")
    elsewhere = run_of("group-sizes", settings, runner, *options)
    assert made(elsewhere) == made(here)
    assert workers_of(elsewhere) and os.getpid() not in workers_of(elsewhere)


LIVE_ARTIFACT = "estimates/persons/US/00000.parquet"
"""Appears while a run is in the middle of its work."""


def started_run(spineflow, folder: Path, text: str, *options: str, **environment: str):
    """A run in the middle of its estimates, and its command."""
    (folder / "settings.toml").write_text(text)
    set_caps(open_ledger(folder / "ledger.db"), None, Caps(Fraction(9)))
    run = RunDirectory(folder / "run")
    command = ["run", "topdown", str(folder / "settings.toml"), "--run-dir", str(run.root)]
    overrides = [part for option in options for part in ("--set", option)]
    return run, spineflow(*command, *overrides, folder=folder, **environment)


def released(run: RunDirectory) -> dict[str, bytes]:
    return {
        path.relative_to(run.release).as_posix(): path.read_bytes()
        for path in sorted(run.release.rglob("*"))
        if path.is_file() and path.stem != "certificate"
    }


def assert_sound(run: RunDirectory) -> None:
    """The release is that of an uninterrupted run from its measurements, under one charge."""
    assert run.read_manifest()["status"] == "complete"
    ledger = Path(tomllib.loads(run.settings.read_text())["privacy"]["ledger"])
    spent = summary(open_ledger(ledger, must_exist=True))["datasets"]["county"]
    assert len(spent["products"]["topdown"]["draws"]) == 2
    assert not [path for path in run.root.rglob("*") if path.suffix in (".part", ".unpublished")]
    made = released(run)
    assert "mdf_persons.csv" in made
    remove_derived(run)
    with stages_in_process(judged_twice=False), uncompared():
        assert main(["resume", str(run.root)]) == 0
    assert released(run) == made


@pytest.mark.slow
@pytest.mark.soak(60)
@pytest.mark.parametrize(
    "moment", ["measurements/persons/US/dpqueries/00000.parquet", LIVE_ARTIFACT]
)
def test_dask_worker_killed(
    spineflow, new_spineflow, real_server, settings_text: str, tmp_path: Path, moment: str
) -> None:
    """Threat model: a worker taken for dead returns."""
    pytest.importorskip("prefect_dask", reason="needs prefect-dask: install the extra 'dask'")
    psutil = pytest.importorskip("psutil")
    environment = real_server.environment
    dask = "run.runner=dask"
    run, command = started_run(new_spineflow, tmp_path, settings_text, dask, **environment)
    command.wait_for(run.root / moment)
    children = psutil.Process(command.process.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert workers
    workers[0].kill()
    code, _, errors = command.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)
