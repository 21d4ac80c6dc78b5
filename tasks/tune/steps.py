"""The steps of a search: reading the input, preparing a trial, running a replicate."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.tune.settings import TuneSettings
from spineflow.tasks.tune.trials import prepare_trial, read_input, replicate_path, run_replicate


@step("read tuning data", run_name="read tuning data")
def read_tuning_data(run_root: str, model: type[TuneSettings]) -> Artifact:
    """Read the input that all trials share; `model` is that of the search's settings."""
    run = RunDirectory(Path(run_root))
    with stopwatch() as seconds:
        read_input(run, frozen_settings(model, run.settings))
    return Artifact("dataset", seconds=seconds())


@step("prepare trial", run_name="prepare-{trial}")
def prepare(run_root: str, model: type[TuneSettings], trial: str) -> Artifact:
    """Make what the replicates of a trial share: its spine and constraints."""
    with stopwatch() as seconds:
        prepare_trial(RunDirectory(Path(run_root)), model.SEARCHED, trial)
    return Artifact(f"trials/{trial}/layout", seconds=seconds())


@step("replicate", run_name="replicate-{trial}-{seed}")
def replicate(run_root: str, model: type[TuneSettings], trial: str, seed: int) -> Artifact:
    """Measure, estimate and judge one replicate of a trial."""
    run = RunDirectory(Path(run_root))
    path = replicate_path(run, trial, seed)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            run_replicate(run, frozen_settings(model, run.settings), trial, seed)
    return run.artifact(path, seconds=seconds(), reused=reused)
