"""Where a release lies in the intervals that its measurements give: figures of the report.

The estimates of the intervals are unbiased, and their errors are known. A release is whole, not
negative and consistent, and therefore biased: what is true of it on average is seen where many
answers are added up. `agreement` counts, by geolevel and query, how many released answers lie
inside their intervals; `classes` adds up the areas of about the same released number of records,
and compares what was released of each level of an attribute there with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from ...census.queries import MarginalQuery, marginal_query
from ...runs.directory import RunDirectory
from ...runs.files import write_text
from ...runs.stamps import has_frames, read_frames, write_frames
from ..estimation.spine_estimates import GroupedEstimates
from ..intervals.answers import ProductAnswers, covariances_of, estimates_of
from ..intervals.areas import BlockAreas
from ..intervals.cells import PublishedCells
from ..intervals.intervals import intervals_of
from ..intervals.run_posterior import RunPosterior
from ..measurement.public_answers import released_counts
from ..settings import TopdownSettings
from .margin_files import MARGIN_LEVEL

MOST_ANSWERS = 150
"""Most answers of a query that is looked at; larger ones tell no more, and take longest."""
MOST_LEVELS = 8
"""Most levels of an attribute that are shown; of longer ones the largest, and all others."""
CLASSES = (1, 10, 100, 1000)
"""Released numbers of records from which a class of areas begins, after that of none."""
ANSWERS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class MarginSummary:
    """agreement: geolevel, query, answers (not known exactly), below, inside, above, and negative
    estimates, as shares of them. classes: class (its first number of records), areas, attribute,
    label, released, estimate, std_dev, lower, upper."""

    agreement: pd.DataFrame
    classes: pd.DataFrame


def summarise_margins(
    run: RunDirectory, settings: TopdownSettings, universe: str, found: RunPosterior
) -> MarginSummary:
    """From the measurements and the estimates of a run; nothing confidential."""
    schema, names = settings.schema_of(universe), settings.budget_of(universe).queries
    queries = [marginal_query(schema, name) for name in names]
    queries = [query for query in queries if query.n_rows <= MOST_ANSWERS]
    rows = []
    counts = sparse.csr_array((0, schema.n_cells), dtype=np.int64)
    for depth, estimates in enumerate(found.geolevels):
        level = found.spine.geolevels[depth]
        counts = released_counts(run, universe, level, schema.n_cells)
        for query in queries:
            row = _agreement(found, depth, estimates, query, counts)
            if row is not None:
                rows.append({"geolevel": level.name, "query": query.name, **row})
    columns = ["geolevel", "query", "answers", "below", "inside", "above", "negative"]
    return MarginSummary(
        pd.DataFrame(rows, columns=columns),
        pd.DataFrame(_classes(settings, universe, found, counts)),
    )


def _agreement(
    found: RunPosterior,
    depth: int,
    estimates: GroupedEstimates,
    query: MarginalQuery,
    counts: sparse.csr_array,
) -> dict[str, float] | None:
    """Where released answers lie; None if all are known exactly, or none is known."""
    answers = ProductAnswers.of_query(estimates.algebra, query)
    totals = np.zeros(5, dtype=np.int64)
    size = max(1, ANSWERS_AT_ONCE // query.n_rows)
    for start in range(0, counts.shape[0], size):
        rows = np.arange(start, min(start + size, counts.shape[0]))
        covariances = covariances_of(estimates, answers, rows)
        variance, values = covariances.variances(), estimates_of(estimates, answers, rows)
        bounds = found.bounds_of(found.bounds[depth].part(rows), query.matrix)
        ends = intervals_of(values, variance, MARGIN_LEVEL, *bounds, found.of_run.mechanism)
        released = (counts[rows] @ query.matrix.T).toarray()
        is_open = (variance > 0) & covariances.is_known()
        below, above = released < ends.bounded_lower, released > ends.bounded_upper
        for place, mark in enumerate((is_open, below, ~below & ~above, above, values < 0)):
            totals[place] += int((mark & is_open).sum())
    if not totals[0]:
        return None
    shares = dict(
        zip(("below", "inside", "above", "negative"), totals[1:] / totals[0], strict=True)
    )
    return {"answers": int(totals[0]), **shares}


def _classes(
    settings: TopdownSettings, universe: str, found: RunPosterior, counts: sparse.csr_array
) -> Iterator[dict[str, object]]:
    """Rows of `MarginSummary.classes`, from the released counts of the areas (n_areas, n_cells)."""
    schema = settings.schema_of(universe)
    total = np.asarray(counts.sum(axis=1)).reshape(-1)
    number = np.searchsorted(CLASSES, total, side="right")
    areas = BlockAreas.of_pairs(len(CLASSES) + 1, np.arange(len(total)), number)
    whole = np.asarray(counts.sum(axis=0)).reshape(-1)
    labels, masks = [], []
    for attribute in schema.attributes:
        levels, names = schema.levels(attribute), schema.labels(attribute)
        order = np.argsort(-np.bincount(levels, whole, len(names)), kind="stable")
        shown = order if len(names) <= MOST_LEVELS else order[: MOST_LEVELS - 1]
        for level in sorted(shown):
            labels.append((attribute, names[level]))
            masks.append(levels == level)
        if len(shown) < len(names):
            labels.append((attribute, "all others"))
            masks.append(~np.isin(levels, shown))
    counted = sparse.csr_array(np.array(masks, dtype=np.int64))
    released = areas.sums((counts @ counted.T).toarray())
    ((_, answers),) = PublishedCells(found, counted).of_areas(areas)
    ends, sd = answers.intervals(MARGIN_LEVEL), np.sqrt(answers.variance)
    n_areas = np.bincount(areas.area, minlength=areas.n_areas)
    for place, first in enumerate((0, *CLASSES)):
        for column, (attribute, label) in enumerate(labels):
            if n_areas[place] and answers.is_known[place, column] and sd[place, column] > 0:
                yield {
                    "class": first,
                    "areas": int(n_areas[place]),
                    "attribute": attribute,
                    "label": label,
                    "released": int(released[place, column]),
                    "estimate": float(answers.estimate[place, column]),
                    "std_dev": float(sd[place, column]),
                    "lower": int(ends.bounded_lower[place, column]),
                    "upper": int(ends.bounded_upper[place, column]),
                }


def write_margin_summary(run: RunDirectory, universe: str, summary: MarginSummary) -> None:
    """Store the figures in `intervals/<universe>/summary` of the run."""
    write_frames(_folder(run, universe), summary)


def has_margin_summary(run: RunDirectory, universe: str) -> bool:
    """Whether the figures are stored."""
    return has_frames(_folder(run, universe), MarginSummary)


def read_margin_summary(run: RunDirectory, universe: str) -> MarginSummary | None:
    """The stored figures; None where there are none."""
    if not has_margin_summary(run, universe):
        return None
    return read_frames(_folder(run, universe), MarginSummary)


def write_why_none(run: RunDirectory, universe: str, why: str) -> None:
    """Store the sentence on why a universe has no margins, beside where its figures would be."""
    write_text(_why_none(run, universe), why)


def read_why_none(run: RunDirectory, universe: str) -> str | None:
    """The stored sentence; None where there is none."""
    path = _why_none(run, universe)
    return path.read_text(encoding="utf-8") if path.exists() else None


def _why_none(run: RunDirectory, universe: str) -> Path:
    return _folder(run, universe) / "none.txt"


def _folder(run: RunDirectory, universe: str) -> Path:
    return run.root / "intervals" / universe / "summary"
