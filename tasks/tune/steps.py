"""The steps of a search: reading the input, preparing a trial, running a replicate.

Their first argument after the run is the model of the search's settings.
"""

from __future__ import annotations

from ..runs.directory import RunDirectory
from ..runs.handles import Made, made, once
from ..runs.settings_files import frozen_settings
from ..runs.steps import step
from .settings import TuneSettings
from .trials import prepare_trial, read_input, replicate_path, run_replicate


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
    return once(path, run_replicate, run, frozen_settings(model, run.settings), trial, seed)
