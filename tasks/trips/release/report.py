"""The public report of a trips run, and sentences on conversion and delta.

Accuracy against the input is shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from ...pages.document import Block, Document, Table
from ...pages.template import parts_of
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan, read_tree
from ..plan import Plan as TreePlan
from ..settings import TripsSettings
from .errors import BETA, BOUND_OF, error_bounds, false_cells
from .table import TABLE, n_released, n_trips

KEYS = ("level", "areas")
FIGURES = {
    "max_absolute_error": "largest absolute error",
    "mean_absolute_error": "mean absolute error of the nodes with trips in truth or release",
    "false_discovery_percent": "released nodes without trips, %",
    "false_negative_percent": "nodes with trips that are not released, %",
}
"""Columns of the errors of a run, as comparisons of runs show them, too: keys, figures in words."""


def report(
    run: RunDirectory, settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document."""
    own = read_plan(run)
    bounds = error_bounds(own, read_tree(run).total)
    return report_document(
        run,
        settings,
        plan,
        "trips/templates/report.md.j2",
        counts=first_rows(run.release / f"{TABLE}.parquet"),
        own=own,
        warning=delta_warning(settings, n_trips(run.release, own.tree)),
        false_cells=false_cells(run, own).sentence,
        confidence=f"{1 - BETA:g}",
        bound_of=None if bounds is None else BOUND_OF[own.mechanism],
        levels=_levels(run, own, bounds),
        errors=None
        if accuracy is None
        else {
            f"level {level}": error
            for level, error in zip(accuracy["level"], accuracy["mean_absolute_error"], strict=True)
        },
        accuracy=None if accuracy is None else _accuracy(accuracy),
    )


def conversion_sentence(settings: TripsSettings) -> tuple[Block, ...]:
    """The rho that the tight conversion of epsilon and delta would allow, where the simple one was
    used."""
    _, _, (section,) = parts_of("trips/templates/conversion.md.j2", settings=settings)
    return section.blocks


def delta_warning(settings: TripsSettings, n_trips: int | None) -> str | None:
    """A sentence if delta is no smaller than one over the persons; None if it is, or unknown.

    `n_trips` must be public: an invariant total, or a released one.
    """
    delta = settings.privacy.delta
    if delta is None or settings.privacy.epsilon is None or n_trips is None or n_trips <= 0:
        return None
    n_persons = math.ceil(n_trips / settings.privacy.trips_per_person)
    if delta * n_persons < 1:
        return None
    return (
        f"privacy.delta = {delta} is not below one over the number of persons: such a guarantee "
        "does not rule out that a person's trips are published outright, so choose a smaller one"
    )


def _levels(run: RunDirectory, plan: TreePlan, bounds: Sequence[float] | None) -> Table:
    """Areas, nodes, released counts and error bounds of every level of the tree."""
    released, tree = n_released(run.release), plan.tree
    rows = [
        {
            "level": level,
            "areas": tree.level_name(level),
            "nodes": tree.n_nodes(level),
            "released": released[level],
            "error bound": None if bounds is None else bounds[level],
        }
        for level in range(tree.depth + 1)
    ]
    return Table.of(rows, "error bound")


def _accuracy(accuracy: pd.DataFrame) -> Table:
    columns = {
        **dict(zip(KEYS, KEYS, strict=True)),
        **FIGURES,
        "theorem_4_bound": "error bound",
        "proposition_1_bound": "error bound",
        "bias": "bias of the combined estimates",
    }
    known = {name: text for name, text in columns.items() if accuracy[name].notna().all()}
    return errors_table(accuracy, known, FIGURES["mean_absolute_error"])
