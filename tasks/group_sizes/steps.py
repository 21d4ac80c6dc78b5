"""The steps of a group-sizes run."""

from __future__ import annotations

from ..ledger.identity import ingested_once
from ..products.acceptance import tabulated_once
from ..runs.directory import RunDirectory
from ..runs.handles import Made, once
from ..runs.steps import step
from .estimation.estimate import estimate_run
from .ingest.read import ingest_groups, read_plan
from .measurement import measure_level
from .plan import UNIVERSE, plan_file
from .release import GROUP_SIZES, write_run_tables
from .settings import GroupSizesSettings


@step("ingest groups", GroupSizesSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Check the tables, and write the hierarchy, the plan and the confidential counts."""
    return ingested_once(run, settings, plan_file(run), ingest_groups)


@step("measure groups", GroupSizesSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: GroupSizesSettings, level: str) -> Made:
    """Publish a level's noisy vector; published measurements are never drawn again."""
    return once(run.dpqueries(UNIVERSE, level), measure_level, run, settings, level)


@step("estimate groups", GroupSizesSettings, run_name="estimate")
def estimate(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Find the counts of all levels from the noisy vectors, by the mechanism of the plan."""
    path = run.estimates(UNIVERSE, read_plan(run).levels[-1].level)
    return once(path, estimate_run, run, settings)


@step("tabulate groups", GroupSizesSettings, run_name="tabulate")
def tabulate(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Write the tables where the checks look for them."""
    return tabulated_once(run, f"{GROUP_SIZES}.csv", write_run_tables, run, settings)
