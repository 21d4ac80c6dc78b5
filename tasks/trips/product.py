"""Trips as a product: from origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...validation.trips import check_privacy, run_checks
from ..pages.document import Block, table
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words, count_released_rows
from ..runs.directory import RunDirectory
from .charge import measurement_files, plan_of
from .ingest.ingest import AcceptedTrips, check_input, refuse_delta_of
from .plan import make_plan, read_plan
from .release import (
    FIGURES,
    KEYS,
    RANGE_QUERIES,
    delta_warning,
    facts_of_run,
    false_cells,
    released_level,
    report,
    settings_of_release,
    write_accuracy,
)
from .settings import TripsSettings
from .tree import leaves_file, read_tree


def check_settings_against_input(
    settings: TripsSettings, accepted: AcceptedTrips
) -> Iterable[Block]:
    """Hold the settings to the tree, and delta to the trips; raises InputRefused."""
    refuse_delta_of(settings, accepted.leaves.total)
    make_plan(settings, accepted.shape.tree)
    return ()


def summary(run: RunDirectory, settings: TripsSettings) -> Iterator[Block]:
    """Content of the release, and the expected number of false cells."""
    plan = read_plan(run)
    yield from count_released_rows(run)
    yield false_cells(run, plan).sentence


def facts(run: RunDirectory, settings: TripsSettings) -> Facts:
    """Facts of the certificate about the release, checked or unchecked."""
    plan = read_plan(run)
    release = run.release if run.release.exists() else run.unchecked_release
    levels = [
        {"level": level, "areas": plan.tree.level_name(level)}
        for level in range(plan.tree.depth + 1)
    ]
    context = {
        "own": plan,
        "total": read_tree(run).total,
        "warning": delta_warning(settings, released_level(release, plan.tree, 0).total),
        "levels": table(levels),
        "range_queries": RANGE_QUERIES,
    }
    return Facts("trips/templates/certificate.md.j2", context)


TRIPS: Product = Product(
    TripsSettings,
    plan_of,
    Rules(check_input, check_settings_against_input),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        certificate=facts,
        report=report,
        summary=summary,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        lambda run: [leaves_file(run)],
        figures=Figures(KEYS, FIGURES, facts_of_run),
        of_release=settings_of_release,
    ),
    measurement_files,
)
