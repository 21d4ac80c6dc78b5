"""The estimate flow: from noisy measurements that are published already to microdata and tables.

    geography -> geounits -> invariants -> constraints, measurements
              -> estimate, geolevel by geolevel -> microdata, tables
              -> checks -> release -> report

Nothing confidential is read, no noise is drawn, and no ledger is asked. Once the measurements
stand in the run directory, the steps are those of the topdown flow, on the same files.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from pyarrow import parquet

from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.topdown.checks.steps import report_run
from ..tasks.topdown.measurement.steps import constrain
from ..tasks.topdown.paths import spine_folder
from ..tasks.topdown.published.read import check_measurements, refuse_missing_folder
from ..tasks.topdown.published.settings import EstimateSettings
from ..tasks.topdown.published.steps import (
    read_geography_file,
    read_geounits,
    read_measurements,
    read_told_invariants,
)
from ..tasks.topdown.release.report import write_report
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.spine.build import check_spine_settings
from ..tasks.topdown.spine.shards import shards_by_geolevel
from ..tasks.topdown.spine.steps import summarise_spine
from ..tasks.topdown.spine.summary import has_summary, write_summary
from . import topdown
from .console import print_finished
from .entry import settings_flow
from .form import EstimateForm
from .order import Aside, Order, call, submitted
from .product import Product
from .public_tables import (
    show_budgets,
    show_geounits,
    show_solves,
)
from .results import show_outcome
from .running import entered, stages_run_name, tracker_of

estimate = settings_flow(
    __name__,
    "estimate",
    lambda: PRODUCT,
    EstimateForm(),
    (
        "Releases microdata and redistricting tables from published noisy measurements alone. It "
        "reads nothing confidential and spends nothing."
    ),
)


@flow(name="estimate-stages", flow_run_name=stages_run_name, persist_result=False)
def estimate_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, EstimateSettings) as (run, settings):
        show_budgets(settings)
        for wave in submitted(run, order(run, settings), tracker_of(run, settings, order)):
            if isinstance(wave, Aside):
                show_geounits(run, settings)
            if any(stage.endswith("microdata") for stage in wave):
                show_solves(run)
        show_outcome(run, settings)
    return str(run.release)


def order(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps of a run; the universes go side by side."""
    universes = settings.run.universes
    geography = call(read_geography_file)
    yield {"geography": [geography]}
    spines = {universe: call(read_geounits, universe, after=[geography]) for universe in universes}
    yield {f"{universe} geounits": [spine] for universe, spine in spines.items()}
    told = call(read_told_invariants, after=spines.values())
    yield {"invariants": [told]}
    constrained = {universe: call(constrain, universe, after=[told]) for universe in universes}
    measured = {
        (universe, geolevel): [call(read_measurements, universe, geolevel, after=[told])]
        for universe in universes
        for geolevel in shards_by_geolevel(spine_folder(run, universe))
    }
    yield {f"{universe} constraints": [made] for universe, made in constrained.items()} | {
        f"{universe} measurements {geolevel}": made
        for (universe, geolevel), made in measured.items()
    }
    summaries = {
        f"{universe} spine summary": [call(summarise_spine, universe, after=[told])]
        for universe in universes
    }
    yield Aside(summaries)
    constraints = {universe: [made] for universe, made in constrained.items()}
    estimated = yield from topdown.estimates(run, settings, measured, constraints, universes)
    released = yield from topdown.release_of(run, settings, estimated)
    yield summaries
    yield {"report": [call(report_run, after=[released])]}


def check(settings: TopdownSettings) -> None:
    """Check the measurements, the geography and the state totals as a run does; write nothing."""
    check_measurements(settings)


def finished(run: RunDirectory, settings: TopdownSettings) -> None:
    """The summary at the end of a run: what is in the release, and where it is."""
    lines = []
    for universe in settings.run.universes:
        rows = parquet.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows
        lines.append(f"{universe}: {rows:,} rows; from measurements alone, nothing was spent")
    print_finished(run, settings, lines, None)


def report(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Write the report again, with the spine's summary if it is missing."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    return write_report(run, settings, None)


def refuse(settings: TopdownSettings) -> None:
    """Refuse what the flow cannot estimate or find, and settings of a spine that make none."""
    if settings.is_declared:
        raise InputRefused(
            "The measurements are of a declared census; estimate reads those of the census of 2020 "
            "alone, so continue the run that measured instead."
        )
    check_spine_settings(settings)
    refuse_missing_folder(settings)


PRODUCT: Product = Product(
    settings=EstimateSettings,
    flow=estimate,
    stages=estimate_stages,
    check=check,
    costs=topdown.costs,
    print_costs=topdown.print_costs,
    finished=finished,
    report=report,
    order=order,
    needed=topdown.needed,
    refuse=refuse,
)
