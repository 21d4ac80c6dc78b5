"""The step that reads the input of a trips run."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.ingest.identity import refuse_changed_input, stored_digests
from tasks.ingest.trips.files import tree_file
from tasks.ingest.trips.run import ingest_input
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.trips import TripsSettings
from tasks.steps import step
from tasks.timing import stopwatch


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
