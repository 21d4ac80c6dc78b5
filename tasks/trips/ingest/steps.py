"""The step that reads the input of a trips run."""

from __future__ import annotations

from ...ledger.identity import ingested_once
from ...runs.directory import RunDirectory
from ...runs.handles import Made
from ...runs.steps import step
from ..paths import plan_file, tree_file
from ..settings import TripsSettings
from ..workload.plan import make_plan
from .files import read_tree, write_plan
from .ingest import ingest_input


@step("ingest trips", TripsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TripsSettings) -> Made:
    """Check the files, and write the tree and the confidential counts of its leaves."""
    ingested = ingested_once(run, settings, tree_file(run), ingest_input)
    if not plan_file(run).exists():
        # Runs of version 0.1.0 worked it out in every step.
        run_tree = read_tree(run)
        write_plan(run, make_plan(settings, run_tree.tree, merges=run_tree.merges))
    return ingested
