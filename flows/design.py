"""The design flow: the best split of a topdown budget, and what it gains on data that may be known.

    read the input -> design -> spines and constraints of each allocation -> releases of each, seed
                   by seed -> errors, differences and designed settings -> report

What is finished is kept in the run directory, so that an interrupted comparison goes on where it
was. `spineflow design topdown` finds the split alone, reads no person, and needs no flow.
"""

from __future__ import annotations

from ..tasks.products.order import Order, call
from ..tasks.products.product import Product
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
from ..tasks.topdown.fits import fits
from ..tasks.topdown.ingest.ingest import check_with_notes
from ..tasks.topdown.product import TOPDOWN, costs_in_words
from .entry import flows_of


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


def summary(run: RunDirectory, settings: ComparisonSettings) -> tuple[str, ...]:
    """Where the results are."""
    n = settings.comparison.replicates
    return (
        f"{len(ALLOCATIONS)} allocations, {n} replicates of each by every estimator",
        f"designed settings: {run.release / 'settings.toml'}",
        f"errors and differences: {run.release / TIDY}",
        f"report: {run.report}",
    )


PRODUCT: Product = Product(
    settings=ComparisonSettings,
    costs=lambda settings: TOPDOWN.costs(settings.topdown),
    costs_in_words=lambda settings: costs_in_words(settings.topdown),
    refuse=lambda settings: TOPDOWN.refuse(settings.topdown),
    check_input=lambda settings: check_with_notes(settings.topdown),
    fits=lambda settings, accepted: fits(settings.topdown, accepted),
    order=order,
    summary=summary,
    rewritten=write_report,
)

design, design_stages = flows_of(
    PRODUCT,
    "Finds the best split of a topdown budget for declared targets, and compares it with the "
    "settings' own and with an even one, by every estimator, on data that may be disclosed. It "
    "releases no data, but settings that are ready to run.",
)
