"""The step that reads the input of a trips run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.ledger.identity import refuse_changed_input, stored_digests
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.trips.ingest.files import tree_file
from spineflow.tasks.trips.ingest.run import ingest_input
from spineflow.tasks.trips.settings import TripsSettings


@step("ingest trips", run_name="ingest")
def ingest_trips(run_root: str) -> Artifact:
    """Check the files, and write the tree and the confidential counts of its leaves."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    path = tree_file(run)
    reused = path.exists()
    with stopwatch() as seconds:
        if reused:
            refuse_changed_input(run, settings)
        else:
            ingest_input(run, settings)
    facts = tuple((kind, digest.whole) for kind, digest in stored_digests(run).items())
    return run.artifact(path, seconds=seconds(), reused=reused, facts=facts)
