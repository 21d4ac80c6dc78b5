"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements."""

from __future__ import annotations

from collections.abc import Iterator

from ...validation.topdown.privacy import check_privacy
from ..pages.document import Block, Section
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import Accuracy, Checks, Product, Rules, Words
from .checks.accuracy.report import errors_of_totals, write_comparison
from .checks.pieces import outcomes_of_pieces
from .estimation.largest_solve import largest_solve, refuse_settings, size_in_words
from .ingest.ingest import check_with_notes
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
from .settings import TopdownSettings
from .summaries import document, list_ui_tables, rewritten, summary, summary_of_estimate
from .workload.privacy_curve import scope_of_figures


def words_on_costs(settings: TopdownSettings, _plan: Plan) -> Iterator[Block | Section]:
    """The change behind the figures, and the size of the largest solve."""
    yield from scope_of_figures(settings)
    for universe in settings.run.universes:
        yield from size_in_words(universe, largest_solve(settings, universe))


TOPDOWN: Product = Product(
    TopdownSettings,
    plan_within_memory,
    Rules(check_with_notes, check_settings_against_input, refuse_settings),
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
    Accuracy(read_errors, in_brief=errors_of_totals, compare=write_comparison),
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
