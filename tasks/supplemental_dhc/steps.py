"""The steps of a run of the supplemental tables."""

from __future__ import annotations

from ..ledger.identity import ingested_once
from ..products.acceptance import tabulated_once
from ..runs.directory import RunDirectory
from ..runs.handles import Made, once
from ..runs.stamps import write_parquet
from ..runs.steps import step
from .estimation import estimate_level
from .ingest import ingest_households
from .measurement import measure_level
from .plan import UNIVERSE, areas_file
from .release import SUPPLEMENTAL_DHC, write_tables
from .settings import SupplementalDhcSettings


@step("ingest households", SupplementalDhcSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: SupplementalDhcSettings) -> Made:
    """Check the tables, and write the areas and the confidential counts."""
    return ingested_once(run, settings, areas_file(run), ingest_households)


@step("measure households", SupplementalDhcSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> Made:
    """Publish a level's noisy counts; published measurements are never drawn again."""
    return once(run.dpqueries(UNIVERSE, level), measure_level, run, settings, level)


@step("estimate households", SupplementalDhcSettings, run_name="estimate-{level}")
def estimate(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> Made:
    """Write the rows of a level's tables, from its noisy counts alone."""
    path = run.estimates(UNIVERSE, level)
    return once(path, lambda: write_parquet(path, estimate_level(run, level)))


@step("tabulate households", SupplementalDhcSettings, run_name="tabulate")
def tabulate(run: RunDirectory, settings: SupplementalDhcSettings) -> Made:
    """Write the tables where the checks look for them."""
    # The text is named last.
    return tabulated_once(run, f"{SUPPLEMENTAL_DHC}.csv", write_tables, run)
