"""The step that reads the input of a trips run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..paths import plan_file, tree_file
from ..settings import TripsSettings
from ..workload.plan import make_plan
from .files import read_tree
from .ingest import ingest_input
from .plan_file import write_plan


@step("ingest trips", TripsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TripsSettings) -> Made:
    """Check the files, and write the tree and the confidential counts of its leaves."""
    path = tree_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        if not plan_file(run).exists():
            # Runs of version 0.1.0 worked it out in every step.
            run_tree = read_tree(run)
            write_plan(run, make_plan(settings, run_tree.tree, merges=run_tree.merges))
        return found(path, whole_digests(run))
    ingest_input(run, settings)
    return made(path, whole_digests(run))
