"""The steps of runs over detailed groups, of persons and of households."""

from __future__ import annotations

from ..ledger.identity import refuse_changed_input
from ..products.acceptance import tabulated_once
from ..products.product import settings_of
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created, once, reused
from ..runs.steps import step
from .ingest.ingest import (
    Settings,
    Shard,
    counts_file,
    ingest_input,
    measured_file,
    public_digests,
    refuse_edited_parameters,
    run_parameters,
    shards_file,
    shards_of,
    stage_1_file,
    tabulate,
)
from .measurement import measure_tables_once, measure_totals_once, measured_shards
from .postprocess import pass_files, postprocess
from .release.tables import TIDY_FILES, write_run_release
from .settings import DetailedGroupsSettings


@step("ingest detailed groups", settings_of, run_name="ingest")
def ingest(run: RunDirectory, settings: Settings) -> Made:
    """Check parameters and tables; write public files, and persons or householders in confidence.
    Existing files must agree with the input.
    """
    path = shards_file(run)
    is_there = path.exists()
    if is_there:
        refuse_changed_input(run, settings)
        refuse_edited_parameters(run)
    else:
        ingest_input(run, settings)
    return Made(path, is_there, public_digests(run))


@step("count groups", settings_of, run_name="count-{region_type}-{level}")
def count(run: RunDirectory, settings: Settings, region_type: str, level: int) -> Made:
    """Count the records of every group of a level, in confidence, unless all are measured."""
    path, parameters = counts_file(run, region_type, level), run_parameters(run, settings)
    measured = (
        measured_file(run, name, shard)
        for name, shard in measured_shards(run, parameters)
        if (shard.region_type, shard.level) == (region_type, level)
    )
    if path.exists() or all(file.exists() for file in measured):
        return reused(path)
    tabulate(run, region_type, level)
    return created(path)


@step(
    "stage 1",
    DetailedGroupsSettings,
    run_name="stage-1-{region_type}-{level}-{shard}",
    retried=False,
)
def measure_totals(
    run: RunDirectory, settings: DetailedGroupsSettings, region_type: str, level: int, shard: str
) -> Made:
    """Publish the noisy totals that choose a shard's tables; they are never drawn again."""
    part = _shard(run, region_type, level, shard)
    return once(stage_1_file(run, part), measure_totals_once, run, settings, part)


@step(
    "measure tables",
    settings_of,
    run_name="measure-{tables}-{region_type}-{level}-{shard}",
    retried=False,
)
def measure_tables(
    run: RunDirectory, settings: Settings, tables: str, region_type: str, level: int, shard: str
) -> Made:
    """Publish a shard's noisy counts of a tabulation; they are never drawn again."""
    part = _shard(run, region_type, level, shard)
    path = measured_file(run, tables, part)
    return once(path, measure_tables_once, run, settings, tables, part)


@step("postprocess groups", DetailedGroupsSettings, run_name="{stage}-{region_pass}")
def process(
    run: RunDirectory, settings: DetailedGroupsSettings, stage: str, region_pass: str
) -> Made:
    """Apply a stage of `stages_of` to the groups of a pass, from the previous stage's output."""
    files = pass_files(run, run_parameters(run, settings), region_pass)
    folder = files.derived / stage
    if files.are_there(stage):
        return reused(folder)
    postprocess(run, settings, region_pass, stage)
    return created(folder)


@step("write groups", settings_of, run_name="write groups")
def write_tables(run: RunDirectory, settings: Settings) -> Made:
    """Write the files of the release, unless they are there; they are released once checked."""
    tidy = TIDY_FILES[run_parameters(run, settings).records]
    return tabulated_once(run, tidy, write_run_release, run, settings)


def _shard(run: RunDirectory, region_type: str, level: int, name: str) -> Shard:
    return next(own for own in shards_of(run, region_type, level) if own.name == name)
