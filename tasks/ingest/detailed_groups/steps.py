"""The steps that read the input of a detailed-groups run and count its groups."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.ingest.detailed_groups.run import (
    ingest_input,
    public_digests,
    refuse_edited_parameters,
    tabulate,
)
from tasks.ingest.detailed_groups.run_files import (
    counts_file,
    measured_file,
    read_shards,
    shards_file,
)
from tasks.ingest.identity import refuse_changed_input
from tasks.run_directory import RunDirectory
from tasks.settings.detailed_groups import DetailedGroupsSettings
from tasks.settings.load import frozen_settings
from tasks.steps import step
from tasks.timing import stopwatch


@step("ingest detailed groups", run_name="ingest")
def ingest_groups(run_root: str) -> Artifact:
    """Check parameters, persons and geography; write what is public, and persons in confidence."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    path = shards_file(run)
    reused = path.exists()
    with stopwatch() as seconds:
        if reused:
            refuse_changed_input(run, settings)
            refuse_edited_parameters(run)
        else:
            ingest_input(run, settings)
    facts = tuple(public_digests(run).items())
    return run.artifact(path, seconds=seconds(), reused=reused, facts=facts)


@step("count groups", run_name="count-{region_type}-{level}")
def count_groups(run_root: str, region_type: str, level: int) -> Artifact:
    """Count the persons of every group of a level, in confidence, unless all are measured."""
    run = RunDirectory(Path(run_root))
    path = counts_file(run, region_type, level)
    of_level = [
        shard
        for shard in read_shards(run)
        if (shard.region_type, shard.level) == (region_type, level)
    ]
    reused = path.exists() or all(measured_file(run, shard).exists() for shard in of_level)
    with stopwatch() as seconds:
        if not reused:
            tabulate(run, region_type, level)
    return Artifact(str(path.relative_to(run.root)), seconds=seconds(), reused=reused)
