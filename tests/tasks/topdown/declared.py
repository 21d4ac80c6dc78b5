"""Runs of declared censuses without Prefect: every stage as its plain functions."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.checks.pieces import outcomes_of_pieces
from spineflow.tasks.topdown.estimation.estimate import ShardInput
from spineflow.tasks.topdown.estimation.largest_solve import refuse_settings
from spineflow.tasks.topdown.estimation.steps import (
    COMBINE,
    ESTIMATE,
    estimation_order,
    estimator_of,
)
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.measurement.measure import measure_once
from spineflow.tasks.topdown.measurement.public_answers import constrain_universe
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.release.microdata import write_universe
from spineflow.tasks.topdown.release.tabulations.run import RunTables
from spineflow.tasks.topdown.settings import TopdownSettings, universe_waves
from spineflow.tasks.topdown.spine.build import write_universe_spine
from spineflow.tasks.topdown.spine.files import RunUniverse, read_shards, shards_by_geolevel
from spineflow.validation.outcome import Outcome


def load(path: Path) -> TopdownSettings:
    """The settings of a file, checked as the command checks them."""
    settings = load_settings(TopdownSettings, path, presets=PRESETS)
    refuse_settings(settings)
    return settings


def run_declared(settings: TopdownSettings, folder: Path) -> tuple[RunDirectory, list[Outcome]]:
    """All stages up to the checks, whose outcomes are returned; the release stays unchecked."""
    run = RunDirectory(folder)
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    ingest_input(run, settings)
    for universe in settings.run.universes:
        write_universe_spine(run, settings, universe)
    TOPDOWN.charge_run(run, settings)
    for wave in universe_waves(settings):
        for universe in wave:
            constrain_universe(run, settings, universe)
            own = RunUniverse(run, settings, universe)
            for shard in read_shards(spine_folder(run, universe)):
                measure_once(own, shard)
            estimator = estimator_of(settings)
            steps = {ESTIMATE: estimator.estimate, COMBINE: estimator.combine}
            for stage, geolevel in estimation_order(settings, own.spine.names):
                for shard in shards_by_geolevel(run, universe)[geolevel]:
                    steps[stage](ShardInput.read(own, shard))
    run.unchecked_release.mkdir(exist_ok=True)
    for universe in settings.run.universes:
        write_universe(RunUniverse(run, settings, universe))
    RunTables(run, settings).write()
    return run, outcomes_of_pieces(run, settings)
