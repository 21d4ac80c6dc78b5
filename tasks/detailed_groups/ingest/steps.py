"""The steps that read the input of a detailed-groups run and count its groups."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..paths import (
    counts_file,
    measured_file,
    read_shards,
    shards_file,
)
from ..settings import DetailedGroupsSettings
from .ingest import (
    ingest_input,
    public_digests,
    refuse_edited_parameters,
    tabulate,
)


@step("ingest detailed groups", DetailedGroupsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Check parameters, persons and geography; write what is public, and persons in confidence."""
    path = shards_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        refuse_edited_parameters(run)
        return found(path, public_digests(run))
    ingest_input(run, settings)
    return made(path, public_digests(run))


@step("count groups", DetailedGroupsSettings, run_name="count-{region_type}-{level}")
def count(
    run: RunDirectory, _settings: DetailedGroupsSettings, region_type: str, level: int
) -> Made:
    """Count the persons of every group of a level, in confidence, unless all are measured."""
    path = counts_file(run, region_type, level)
    of_level = [
        shard
        for shard in read_shards(run)
        if (shard.region_type, shard.level) == (region_type, level)
    ]
    if path.exists() or all(measured_file(run, shard).exists() for shard in of_level):
        return found(path)
    tabulate(run, region_type, level)
    return made(path)
