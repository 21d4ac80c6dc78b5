"""The steps of a trips run."""

from __future__ import annotations

from ..ledger.identity import ingested_once
from ..products.acceptance import tabulated_once
from ..runs.directory import ONLY_SHARD, RunDirectory
from ..runs.handles import Made, once
from ..runs.steps import step
from .estimation.estimate import combine_levels, estimate_once
from .ingest.files import read_plan
from .ingest.ingest import ingest_input
from .measurement import cut_level, estimate_kind, measure_once
from .plan import cuts_file, estimates_file, measured_file, tree_file
from .release import TABLE, write_release
from .settings import TripsSettings


@step("ingest trips", TripsSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TripsSettings) -> Made:
    """Check the files, and write the tree and the confidential counts of its leaves."""
    return ingested_once(run, settings, tree_file(run), ingest_input)


@step("cut level", TripsSettings, run_name="cut-level_{level:02d}", retried=False)
def cut(run: RunDirectory, settings: TripsSettings, level: int) -> Made:
    """Decide which nodes each shard of a level measures."""
    path = cuts_file(run, level)
    return once(path, cut_level, run, settings, level)


@step("measure level", TripsSettings, run_name="measure-level_{level:02d}-{shard}", retried=False)
def measure(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> Made:
    """Publish a shard's noisy counts; published measurements are never drawn again."""
    return once(measured_file(run, level, shard), measure_once, run, settings, level, shard)


@step("estimate level", TripsSettings, run_name="estimate-level_{level:02d}-{shard}")
def estimate(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> Made:
    """Project the noisy children of a shard's parents; inferred counts need no measurement."""
    path = estimates_file(run, level, shard, kind=estimate_kind(read_plan(run)))
    return once(path, estimate_once, run, settings, level, shard)


@step("combine levels", TripsSettings, run_name="combine")
def combine(run: RunDirectory, settings: TripsSettings) -> Made:
    """Least squares over the measurements of all levels, then the integer pass."""
    path = estimates_file(run, read_plan(run).tree.depth, ONLY_SHARD)
    return once(path, combine_levels, run, settings)


@step("write table", TripsSettings, run_name="table")
def write_table(run: RunDirectory, settings: TripsSettings) -> Made:
    """Write the table and its range queries from the leaves' estimates."""
    return tabulated_once(run, f"{TABLE}.csv", write_release, run)
