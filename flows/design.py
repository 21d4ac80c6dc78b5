"""The design flow: the best split of a topdown budget, and what it gains on data that may be known.

    read the input -> design -> spines and constraints of each allocation -> releases of each, seed
                   by seed -> errors, differences and designed settings -> report

What is finished is kept in the run directory, so that an interrupted comparison goes on where it
was. `spineflow design topdown` finds the split alone, reads no person, and needs no flow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from ..tasks.runs.directory import RunDirectory
from ..tasks.topdown.design.comparison import ALLOCATIONS, TIDY, write_report
from ..tasks.topdown.design.settings import ComparisonSettings
from ..tasks.topdown.design.steps import (
    design_budgets,
    lay_out_allocation,
    read_public_input,
    release_allocation,
    release_comparison,
    report_comparison,
)
from . import topdown
from .console import page
from .entry import settings_flow
from .form import DesignForm
from .order import Order, call, submitted
from .product import Product
from .results import show_result
from .running import entered, stages_run_name, tracker_of

design = settings_flow(
    __name__,
    "design",
    lambda: PRODUCT,
    DesignForm(),
    (
        "Finds the best split of a topdown budget for declared targets, and compares it with the "
        "settings' own and with an even one, by every estimator, on data that may be disclosed. It "
        "releases no data, but settings that are ready to run."
    ),
)


@flow(name="design-stages", flow_run_name=stages_run_name, persist_result=False)
def design_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished replicates are reused. Returns the release's
    folder."""
    with entered(run_directory, ComparisonSettings) as (run, settings):
        for _ in submitted(run, order(run, settings), tracker_of(run, settings, order)):
            pass
        show_result(run, settings)
    return str(run.release)


def order(_run: RunDirectory, settings: ComparisonSettings) -> Order:
    """The steps of a run; allocations and replicates go side by side."""
    yield {"ingest": [call(read_public_input)]}
    yield {"design": [call(design_budgets)]}
    laid_out = {name: call(lay_out_allocation, name) for name in ALLOCATIONS}
    yield {"spine": list(laid_out.values())}
    seeds = range(1, settings.comparison.replicates + 1)
    for name in ALLOCATIONS:
        yield {f"replicates {name}": [call(release_allocation, name, seed) for seed in seeds]}
    yield {"release": [call(release_comparison)]}
    yield {"report": [call(report_comparison)]}


def costs(settings: ComparisonSettings) -> dict[str, Any]:
    """What a release of the settings' own split would cost."""
    return topdown.PRODUCT.costs(settings.topdown)


def print_costs(settings: ComparisonSettings) -> None:
    """The same as tables."""
    topdown.PRODUCT.print_costs(settings.topdown)


def check(settings: ComparisonSettings) -> None:
    """Check the input by the rules of topdown."""
    topdown.PRODUCT.check(settings.topdown)


def refuse(settings: ComparisonSettings) -> None:
    """Refuse what topdown would."""
    topdown.PRODUCT.refuse(settings.topdown)


def finished(run: RunDirectory, settings: ComparisonSettings) -> None:
    """Where the results are."""
    n = settings.comparison.replicates
    page().print(f"{len(ALLOCATIONS)} allocations, {n} replicates of each by every estimator")
    print(f"designed settings: {run.release / 'settings.toml'}")
    print(f"errors and differences: {run.release / TIDY}")
    print(f"report: {run.report}")


def report(run: RunDirectory, settings: ComparisonSettings) -> Path:
    """Write the report again."""
    return write_report(run, settings)


PRODUCT: Product = Product(
    settings=ComparisonSettings,
    flow=design,
    stages=design_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    order=order,
    refuse=refuse,
)
