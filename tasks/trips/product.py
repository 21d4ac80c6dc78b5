"""Trips as a product: from origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow import parquet

from ...validation.trips.privacy_loss import check_privacy
from ...validation.trips.run_checks import run_checks
from ..pages.document import Block
from ..pages.numbers import shown_delta, shown_epsilon
from ..products import budget
from ..products.budget import Cost
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.order import Order
from ..products.product import Accuracy, Caution, Figures, Product
from ..runs.directory import RunDirectory
from .checks.accuracy import ACCURACY, FIGURES, KEYS, facts_of_run, write_accuracy
from .checks.expected import settings_of_release
from .ingest.files import plan_of, read_tree
from .ingest.ingest import AcceptedTrips, check_input, costs, public_plan, refuse_delta_of
from .measurement.charge import measurement_files, plan_of_run
from .paths import leaves_file
from .release.certificate import (
    conversion_sentence,
    delta_warning,
    facts_of,
)
from .release.false_cells import false_cells
from .release.report import report
from .release.table import TABLE, n_trips
from .settings import TripsSettings
from .workload.costs import needed_budget, needed_split, universe_plan
from .workload.exact_loss import curves_of
from .workload.plan import make_plan


def fits(settings: TripsSettings, accepted: AcceptedTrips) -> Iterator[Block]:
    """Hold the settings to the tree, and delta to the trips; raises InputRefused."""
    refuse_delta_of(settings, accepted.leaves.total)
    make_plan(settings, accepted.shape.tree)
    if settings.contribution.has_invariant_total:
        yield from _cautions(settings, accepted.leaves.total)


def costs_in_words(settings: TripsSettings) -> Iterator[Block]:
    """The costs, and what another conversion would allow."""
    yield from budget.costs_in_words(costs(settings))
    yield from conversion_sentence(settings, public_plan(settings))


def summary(run: RunDirectory, settings: TripsSettings) -> Iterator[Block]:
    """What is in the release, what it cost, and how many of its cells are expected to be false."""
    plan = plan_of(run, settings)
    universe = universe_plan(plan, settings.report_delta)
    epsilon, delta = universe.epsilons()["tight"], Cost.of(universe, None).delta
    n_rows = parquet.read_metadata(run.release / f"{TABLE}.parquet").num_rows
    yield (
        f"{plan.mechanism}: {n_rows:,} rows; epsilon {shown_epsilon(epsilon)} at "
        f"delta {shown_delta(delta)}"
    )
    yield false_cells(run, plan).sentence
    yield from _cautions(settings, n_trips(run.release, plan.tree))


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
    check_plan=check_privacy,
    checks=lambda run, settings: run_checks(run.root, run.unchecked_release),
    facts=facts,
    accuracy=Accuracy(
        lambda run: read_errors(run, ACCURACY), write_accuracy, lambda run: [leaves_file(run)]
    ),
    document=report,
    summary=summary,
    figures=Figures(KEYS, FIGURES, facts_of_run),
    of_release=settings_of_release,
)
