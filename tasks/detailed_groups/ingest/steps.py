"""The steps that read the input of a detailed-groups run and count its groups."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.detailed_groups.ingest.run import (
    ingest_input,
    public_digests,
    refuse_edited_parameters,
    tabulate,
)
from spineflow.tasks.detailed_groups.ingest.run_files import (
    counts_file,
    measured_file,
    read_shards,
    shards_file,
)
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.ledger.identity import refuse_changed_input
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


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
