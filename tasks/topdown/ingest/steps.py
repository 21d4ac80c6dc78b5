"""The step that reads the input of a topdown run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.ledger.identity import refuse_changed_input, stored_digests
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.ingest.run import ingest_input
from spineflow.tasks.topdown.settings import TopdownSettings


@step("ingest", run_name="ingest")
def ingest(run_root: str) -> Artifact:
    """Check the tables, and write geography, invariants and confidential block histograms."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TopdownSettings, run.settings)
    reused = run.state_totals.exists()
    with stopwatch() as seconds:
        if reused:
            refuse_changed_input(run, settings)
        else:
            ingest_input(run, settings)
    facts = tuple((kind, digest.whole) for kind, digest in stored_digests(run).items())
    return run.artifact(run.geography, seconds=seconds(), reused=reused, facts=facts)
