"""The steps of a study: reading the input, preparing a trial, running a replicate."""

from __future__ import annotations

from ..products.product import settings_of
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created, once
from ..runs.steps import step
from .settings import TuneSettings
from .trials import dataset, layout_of, prepare_trial, replicate_path, run_replicate


@step("read tuning data", settings_of, run_name="read tuning data")
def read_tuning_data(run: RunDirectory, settings: TuneSettings) -> Made:
    """Read the input that all trials share."""
    settings.SEARCHED.read_input(settings.reading, dataset(run))
    return created(dataset(run))


@step("prepare trial", settings_of, run_name="prepare-{trial}")
def prepare(run: RunDirectory, settings: TuneSettings, trial: str) -> Made:
    """Make the files shared by the replicates of a trial: its spine and constraints."""
    prepare_trial(run, settings.SEARCHED, trial)
    return created(layout_of(run, trial))


@step("replicate", settings_of, run_name="replicate-{trial}-{seed}")
def replicate(run: RunDirectory, settings: TuneSettings, trial: str, seed: int) -> Made:
    """Measure, estimate and judge one replicate of a trial."""
    path, searched = replicate_path(run, trial, seed), settings.SEARCHED
    return once(path, run_replicate, run, searched, settings.criterion.value_of, trial, seed)
