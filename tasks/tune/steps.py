"""The steps of a search: reading the input, preparing a trial, running a replicate.

Their first argument after the run is the model of the search's settings.
"""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.tune.settings import TuneSettings
from spineflow.tasks.tune.trials import prepare_trial, read_input, replicate_path, run_replicate


@step("read tuning data", None, run_name="read tuning data")
def read_tuning_data(run: RunDirectory, model: type[TuneSettings]) -> Made:
    """Read the input that all trials share."""
    read_input(run, frozen_settings(model, run.settings))
    return made(run.root / "dataset")


@step("prepare trial", None, run_name="prepare-{trial}")
def prepare(run: RunDirectory, model: type[TuneSettings], trial: str) -> Made:
    """Make what the replicates of a trial share: its spine and constraints."""
    prepare_trial(run, model.SEARCHED, trial)
    return made(run.root / "trials" / trial / "layout")


@step("replicate", None, run_name="replicate-{trial}-{seed}")
def replicate(run: RunDirectory, model: type[TuneSettings], trial: str, seed: int) -> Made:
    """Measure, estimate and judge one replicate of a trial."""
    path = replicate_path(run, trial, seed)
    if path.exists():
        return found(path)
    run_replicate(run, frozen_settings(model, run.settings), trial, seed)
    return made(path)
