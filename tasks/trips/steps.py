"""The steps of a trips run."""

from __future__ import annotations

from ..ledger.identity import ingested_once
from ..products.acceptance import tabulated_once
from ..runs.directory import RunDirectory
from ..runs.handles import Made, once
from ..runs.steps import step
from .estimation.estimate import combine_levels, estimate_level
from .ingest.ingest import ingest_input
from .measurement import estimate_kind, measure_level
from .plan import estimates_file, measured_file, read_plan
from .release import TABLE, write_release
from .settings import TripsSettings
from .tree import tree_file


@step("ingest trips", TripsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TripsSettings) -> Made:
    """Check the files, and write the tree and the confidential counts of its leaves."""
    return ingested_once(run, settings, tree_file(run), ingest_input)


@step("measure level", TripsSettings, run_name="measure-level_{level:02d}", retried=False)
def measure(run: RunDirectory, settings: TripsSettings, level: int) -> Made:
    """Publish a level's noisy counts; published measurements are never drawn again."""
    return once(measured_file(run, level), measure_level, run, settings, level)


@step("estimate level", TripsSettings, run_name="estimate-level_{level:02d}")
def estimate(run: RunDirectory, settings: TripsSettings, level: int) -> Made:
    """Project the noisy children of all parents; inferred counts need no measurement."""
    path = estimates_file(run, level, estimate_kind(read_plan(run)))
    return once(path, estimate_level, run, settings, level)


@step("combine levels", TripsSettings, run_name="combine")
def combine(run: RunDirectory, settings: TripsSettings) -> Made:
    """Least squares over the measurements of all levels, then the integer pass."""
    path = estimates_file(run, read_plan(run).tree.depth)
    return once(path, combine_levels, run, settings)


@step("write table", TripsSettings, run_name="table")
def write_table(run: RunDirectory, settings: TripsSettings) -> Made:
    """Write the table and its range queries from the leaves' estimates."""
    return tabulated_once(run, f"{TABLE}.csv", write_release, run)
