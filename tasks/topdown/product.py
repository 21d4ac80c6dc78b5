"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements.

Here are also the progress and the summary of their runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction

import pandas as pd
from pyarrow import parquet

from ...validation.topdown.privacy import check_privacy
from ..pages.document import Block, Document, Section, Table
from ..products.acceptance import compare_release
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import END, Accuracy, Caution, Checks, Product, Rules, UiTable, Words
from ..runs.directory import RunDirectory
from .checks.accuracy.compared import records_by_block
from .checks.accuracy.report import (
    accuracy_report,
    errors_in_brief,
    write_comparison,
    write_run_accuracy,
)
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
from .release.report import report, solves_table
from .release.spine_summary import has_summary, write_summary
from .settings import TopdownSettings
from .spine.files import spine_of
from .workload.costs import cost_of
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


def list_ui_tables(
    run: RunDirectory, settings: TopdownSettings, stages: Collection[str]
) -> Iterator[UiTable]:
    """Budgets, geounits, solves and errors, as far as known."""
    if not stages:
        yield from _budgets(settings)
    for universe in settings.run.universes:
        if f"{universe} constraints" in stages:
            spine = spine_of(run, universe)
            rows = tuple(
                (spine.level_names[level.name], len(level), int(level.bypassed.sum()))
                for level in spine.geolevels
            )
            table = Table(("geolevel", "geounits", "bypassed"), rows)
            yield UiTable(f"geounits-{universe}", f"{spine.kind} spine", table)
    if f"{settings.run.universes[0]} microdata" in stages:
        about = "Every least-squares and rounding problem, by outcome"
        yield UiTable("solver-outcomes", about, narrow_solves(solves_table(run)))
    if stages == END:
        errors = errors_in_brief(run, settings)
        if errors is not None:
            about = "Errors by level, and the standard deviation that the budget implies"
            yield UiTable("accuracy", about, errors)


def _budgets(settings: TopdownSettings) -> Iterator[UiTable]:
    """Mechanism and noise of every query at every geolevel, in rounded figures."""
    for universe in settings.run.universes:
        plan = cost_of(settings, universe).plan
        rows = tuple(
            (own.place, own.query, f"{100 * float(own.share):.3g} %", f"{own.deviation:.3g}")
            for own in plan.measures
        )
        rho = plan.bounded_rho
        rho = rho if rho == "inf" else f"{float(Fraction(rho)):.4g}"
        yield UiTable(
            f"budget-{universe}",
            f"Budget of {universe}: rho {rho}",
            Table(("geolevel", "query", "share of the budget", "noise s.d."), rows),
        )


def narrow_solves(table: Table) -> Table:
    """The report's table of solves, in as many columns as a page of 1280 pixels has room for."""
    rows = tuple(
        (f"{universe}, {geolevel}", stage, f"{solver}: {status}", solves, relaxed, residual)
        for universe, geolevel, stage, solver, status, solves, relaxed, _, residual, _ in table.rows
    )
    return Table(("of", "stage", "how", "solves", "relaxed", "largest residual"), rows)


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
        shown=list_ui_tables,
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
        shown=list_ui_tables,
    ),
    Accuracy(read_errors),
)
