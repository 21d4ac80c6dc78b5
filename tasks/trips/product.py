"""Trips as a product: from origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow import parquet

from ...validation.trips import check_privacy, run_checks
from ..pages.document import Block
from ..pages.numbers import format_delta, format_epsilon
from ..pages.template import table
from ..products.budget import Cost
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.product import Accuracy, Caution, Checks, Figures, Product, Rules, Words
from ..runs.directory import RunDirectory
from .charge import measurement_files, plan_of
from .checks.accuracy import ACCURACY, facts_of_run, write_accuracy
from .costs import universe_plan
from .ingest.files import read_plan, read_tree
from .ingest.ingest import AcceptedTrips, check_input, refuse_delta_of
from .plan import leaves_file, make_plan
from .release.errors import false_cells
from .release.report import FIGURES, KEYS, conversion_sentence, delta_warning, report
from .release.table import RANGE_QUERIES, TABLE, n_trips, settings_of_release
from .settings import TripsSettings


def check_settings_against_input(
    settings: TripsSettings, accepted: AcceptedTrips
) -> Iterator[Block]:
    """Hold the settings to the tree, and delta to the trips; raises InputRefused."""
    refuse_delta_of(settings, accepted.leaves.total)
    make_plan(settings, accepted.shape.tree)
    if settings.contribution.has_invariant_total:
        yield from _cautions(settings, accepted.leaves.total)


def summary(run: RunDirectory, settings: TripsSettings) -> Iterator[Block]:
    """Content of the release, its cost, and the expected number of false cells."""
    plan = read_plan(run)
    universe = universe_plan(plan, settings.report_delta)
    epsilon, delta = universe.epsilons()["tight"], Cost(universe).delta
    n_rows = parquet.read_metadata(run.release / f"{TABLE}.parquet").num_rows
    yield (
        f"{plan.mechanism}: {n_rows:,} rows; epsilon {format_epsilon(epsilon)} at "
        f"delta {format_delta(delta)}"
    )
    yield false_cells(run, plan).sentence
    yield from _cautions(settings, n_trips(run.release, plan.tree))


def facts(run: RunDirectory, settings: TripsSettings) -> Facts:
    """Facts of the certificate about the release, checked or unchecked."""
    plan, charged = read_plan(run), plan_of(settings, run)
    release = run.release if run.release.exists() else run.unchecked_release
    levels = [
        {"level": level, "areas": plan.tree.level_name(level)}
        for level in range(plan.tree.depth + 1)
    ]
    context = {
        "own": plan,
        "total": read_tree(run).total,
        "warning": delta_warning(settings, n_trips(release, plan.tree)),
        "levels": table(levels),
        "range_queries": RANGE_QUERIES,
    }
    template = "trips/templates/certificate.md.j2"
    return Facts(template, context, charged.curves(), charged.costs)


def _cautions(settings: TripsSettings, total: int | None) -> Iterator[Caution]:
    sentence = delta_warning(settings, total)
    if sentence is not None:
        yield Caution(sentence)


TRIPS: Product = Product(
    TripsSettings,
    plan_of,
    Rules(check_input, check_settings_against_input),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=lambda settings, plan: conversion_sentence(settings),
        certificate=facts,
        report=report,
        summary=summary,
    ),
    Accuracy(
        lambda run: read_errors(run, ACCURACY),
        write_accuracy,
        lambda run: [leaves_file(run)],
        figures=Figures(KEYS, FIGURES, facts_of_run),
        of_release=settings_of_release,
    ),
    measurement_files,
)
