"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements.

Here is also the summary of their runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyarrow import parquet

from ...validation.topdown.privacy import check_privacy
from ..pages.document import Block, Document, Section
from ..products.acceptance import compare_release
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import Accuracy, Caution, Checks, Product, Rules, Words
from ..runs.directory import RunDirectory
from .checks.accuracy.compared import records_by_block
from .checks.accuracy.report import accuracy_report, write_comparison, write_run_accuracy
from .checks.pieces import outcomes_of_pieces
from .estimation.largest_solve import largest_solve, refuse_settings, size_in_words
from .ingest.ingest import check_input_of
from .measurement.charge import measurement_files
from .preflight import (
    check_settings_against_input,
    fits_measurements,
    plan_of_estimate,
    plan_within_memory,
    redundant_spending_of_run,
    refuse_estimate,
)
from .published.layout import EstimateSettings
from .release.certificate import facts_of, facts_of_run
from .release.margins import universes_without_margins
from .release.report import report
from .release.spine_summary import has_summary, write_summary
from .settings import TopdownSettings
from .workload.privacy_curve import scope_of_figures


def _released_rows(run: RunDirectory, settings: TopdownSettings) -> dict[str, int]:
    return {
        universe: parquet.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows
        for universe in settings.run.universes
    }


def summary(run: RunDirectory, settings: TopdownSettings) -> Iterator[Block]:
    """Content of the release, and pages with its errors."""
    rows = _released_rows(run, settings)
    yield f"Released: {' and '.join(f'{n:,} rows of {name}' for name, n in rows.items())}."
    for why in universes_without_margins(run, settings).values():
        yield Caution(f"{why}.")
    if accuracy_report(run).exists():
        kind = "accuracy, confidential" if settings.input.confidential else "accuracy"
        yield f"{kind}: {accuracy_report(run)}"


def summary_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Iterator[Block]:
    """Content of a release from measurements alone."""
    for universe, rows in _released_rows(run, settings).items():
        yield f"{universe}: {rows:,} rows; from measurements alone, nothing was spent"


def document(
    run: RunDirectory, settings: TopdownSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report, with a map of errors where the input is public."""
    truth = None if settings.input.confidential else records_by_block(run, settings)
    return report(run, settings, plan, accuracy, truth)


def rewritten(run: RunDirectory, settings: TopdownSettings) -> None:
    """Make the spine's summary again if it is missing, and the errors while the truth is there."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    compare_release(run, settings, lambda: write_run_accuracy(run, settings))


def words_on_costs(settings: TopdownSettings, _plan: Plan) -> Iterator[Block | Section]:
    """The change behind the figures, and the size of the largest solve."""
    yield from scope_of_figures(settings)
    for universe in settings.run.universes:
        yield from size_in_words(universe, largest_solve(settings, universe))


TOPDOWN: Product = Product(
    TopdownSettings,
    plan_within_memory,
    Rules(check_input_of, check_settings_against_input, refuse_settings),
    Checks(outcomes_of_pieces, check_privacy),
    Words(
        budget=words_on_costs,
        notes=redundant_spending_of_run,
        certificate=facts_of_run,
        report=document,
        restore=rewritten,
        summary=summary,
    ),
    Accuracy(read_errors, compare=write_comparison),
    measurement_files,
)


ESTIMATE: Product = Product(
    EstimateSettings,
    plan_of_estimate,
    Rules(fits=fits_measurements, refuse=refuse_estimate),
    Checks(outcomes_of_pieces),
    Words(
        budget=words_on_costs,
        certificate=lambda run, settings: facts_of(settings),
        report=document,
        restore=rewritten,
        summary=summary_of_estimate,
    ),
    Accuracy(read_errors),
)
