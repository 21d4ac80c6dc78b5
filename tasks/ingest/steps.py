"""The step that reads the input."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.ingest.identity import refuse_changed_input, stored_digests
from tasks.ingest.run import ingest_input
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.topdown import TopdownSettings
from tasks.steps import step
from tasks.timing import stopwatch


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
