"""Trips as a product: from origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyarrow import parquet

from ...validation.trips.run_checks import run_checks
from ..pages.document import Block, Table
from ..pages.numbers import shown_delta, shown_epsilon
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.order import INGEST, Order
from ..products.privacy_curves import exactly, with_exact
from ..products.product import Accuracy, Caution, Figures, Product, Shown
from ..runs.directory import RunDirectory
from .checks.accuracy import ACCURACY, FIGURES, KEYS, facts_of_run, write_accuracy
from .checks.expected import settings_of_release
from .ingest.files import plan_of, read_tree
from .ingest.ingest import AcceptedTrips, check_input, costs, public_plan, refuse_delta_of
from .measurement.charge import expected_of, measurement_files, plan_of_run
from .paths import leaves_file
from .release.certificate import (
    conversion_sentence,
    cost_table,
    delta_warning,
    facts_of,
    noise_section,
)
from .release.false_cells import false_cells
from .release.report import report
from .release.table import TABLE, n_trips
from .settings import TripsSettings
from .workload.costs import budget_report, needed_budget, needed_split
from .workload.exact_loss import curves_of, exact_curve
from .workload.plan import make_plan


def fits(settings: TripsSettings, accepted: AcceptedTrips) -> Iterator[Block]:
    """Hold the settings to the tree, and delta to the trips; raises InputRefused."""
    refuse_delta_of(settings, accepted.leaves.total)
    make_plan(settings, accepted.shape.tree)
    if settings.contribution.has_invariant_total:
        yield from _cautions(settings, accepted.leaves.total)


def costs_in_words(settings: TripsSettings) -> tuple[Block, ...]:
    """The costs as tables."""
    plan, delta = public_plan(settings), settings.report_delta
    exact = exact_curve(plan, settings.contribution)
    noise = noise_section(settings, plan).blocks
    return (
        cost_table(settings, plan),
        *exactly(with_exact(budget_report(plan, delta), exact, delta), delta),
        *conversion_sentence(settings, plan),
        *(_rounded(block) if isinstance(block, Table) else block for block in noise),
    )


def _rounded(table: Table) -> Table:
    """A table with numbers of three digits."""
    rows = tuple(
        tuple(f"{x:.3g}" if isinstance(x, float) else x for x in row) for row in table.rows
    )
    return Table(table.headers, rows)


def summary(run: RunDirectory, settings: TripsSettings) -> Iterator[Block]:
    """What is in the release, what it cost, and how many of its cells are expected to be false."""
    plan = plan_of(run, settings)
    cost = budget_report(plan, settings.report_delta)
    n_rows = parquet.read_metadata(run.release / f"{TABLE}.parquet").num_rows
    yield (
        f"{plan.mechanism}: {n_rows:,} rows; epsilon {shown_epsilon(cost['epsilon']['tight'])} at "
        f"delta {shown_delta(cost['delta'])}"
    )
    yield false_cells(run, plan).sentence
    yield from _cautions(settings, n_trips(run.release, plan.tree))


def shown(run: RunDirectory, settings: TripsSettings, stages: Collection[str]) -> Iterator[Shown]:
    """The noise of every level, once the plan is made."""
    if INGEST in stages:
        plan = plan_of(run, settings)
        for block in noise_section(settings, plan).blocks:
            if isinstance(block, Table):
                yield Shown("budget-trips", plan.mechanism, block)


def facts(run: RunDirectory, settings: TripsSettings) -> Facts:
    """What the certificate says of the release, checked or about to be."""
    plan = plan_of(run, settings)
    release = run.release if run.release.exists() else run.unchecked_release
    warning = delta_warning(settings, n_trips(release, plan.tree))
    return facts_of(settings, plan, read_tree(run).total, warning)


def _cautions(settings: TripsSettings, total: int | None) -> Iterator[Caution]:
    sentence = delta_warning(settings, total)
    if sentence is not None:
        yield Caution(sentence)


def order(run: RunDirectory, settings: TripsSettings) -> Order:
    """The order of the steps; see `trips.order`."""
    from .order import order  # Prefect takes 1.3 s, of which a budget needs nothing.

    return order(run, settings)


TRIPS: Product = Product(
    settings=TripsSettings,
    costs=costs,
    costs_in_words=costs_in_words,
    check_input=check_input,
    fits=fits,
    needed=lambda settings, target, margin: needed_budget(public_plan(settings), target, margin),
    needed_at_once=lambda settings, wanted: needed_split(public_plan(settings), wanted),
    curves=lambda settings: curves_of(public_plan(settings), settings.contribution),
    order=order,
    plan=plan_of_run,
    measurement_files=measurement_files,
    checks=lambda run, settings: run_checks(
        run.root,
        expected_of(settings, plan_of(run, settings)),
        release_directory=run.unchecked_release,
        is_private=settings.is_private,
    ),
    facts=facts,
    accuracy=Accuracy(
        lambda run: read_errors(run, ACCURACY), write_accuracy, lambda run: [leaves_file(run)]
    ),
    document=report,
    summary=summary,
    shown=shown,
    figures=Figures(KEYS, FIGURES, facts_of_run),
    of_release=settings_of_release,
)
