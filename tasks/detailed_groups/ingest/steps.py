"""The steps that read the input of a detailed-groups run and count its groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...ledger.identity import refuse_changed_input
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..paths import Shard, counts_file, household_file, measured_file, read_shards, shards_file
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .household_ingest import ingest_input as ingest_households_input
from .household_ingest import run_parameters
from .ingest import ingest_input, public_digests, refuse_edited_parameters, tabulate


def _ingested(
    run: RunDirectory, settings: Any, ingest: Callable[[RunDirectory, Any], None]
) -> Made:
    """What an ingest makes, unless it is there already and still what was read."""
    path = shards_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        refuse_edited_parameters(run)
        return found(path, public_digests(run))
    ingest(run, settings)
    return made(path, public_digests(run))


@step("ingest detailed groups", DetailedGroupsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Check parameters, persons and geography; write what is public, and persons in confidence."""
    return _ingested(run, settings, ingest_input)


@step("count groups", DetailedGroupsSettings, run_name="count-{region_type}-{level}")
def count(
    run: RunDirectory, _settings: DetailedGroupsSettings, region_type: str, level: int
) -> Made:
    """Count the persons of every group of a level, in confidence, unless all are measured."""
    files = [measured_file(run, shard) for shard in _shards_of(run, region_type, level)]
    return _counted(run, region_type, level, files)


@step("ingest detailed households", DetailedHouseholdsSettings, run_name="ingest")
def ingest_households(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Made:
    """Check parameters, tables and totals; write what is public, and householders in confidence."""
    return _ingested(run, settings, ingest_households_input)


@step("count households", DetailedHouseholdsSettings, run_name="count-{region_type}-{level}")
def count_households(
    run: RunDirectory, settings: DetailedHouseholdsSettings, region_type: str, level: int
) -> Made:
    """Count the households of every group of a level, in confidence, unless all are measured."""
    parameters = run_parameters(run, settings)
    files = [
        household_file(run, name, shard)
        for name in parameters.of
        if (region_type, level) in parameters.of[name].budgets
        for shard in _shards_of(run, region_type, level)
    ]
    return _counted(run, region_type, level, files)


def _shards_of(run: RunDirectory, region_type: str, level: int) -> list[Shard]:
    key = (region_type, level)
    return [shard for shard in read_shards(run) if (shard.region_type, shard.level) == key]


def _counted(run: RunDirectory, region_type: str, level: int, measured: Sequence[Path]) -> Made:
    """The counts of a level, unless they are there or all files of it are `measured`."""
    path = counts_file(run, region_type, level)
    if path.exists() or all(file.exists() for file in measured):
        return found(path)
    tabulate(run, region_type, level)
    return made(path)
