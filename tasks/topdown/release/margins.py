"""The margins of a run: from its measurements, for its tables and its report.

Position of a release within the intervals of its measurements: figures of the report.

The estimates of the intervals are unbiased, and their errors are known. A release is whole, not
negative and consistent, and therefore biased: the bias is seen where many answers are added up.
`agreement` counts, by geolevel and query, how many released answers lie inside their intervals;
`classes` adds up the areas of about the same released number of records, and compares the released
count of each level of an attribute there with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ...census.queries import MarginalQuery, marginal_query
from ...runs.directory import RunDirectory
from ...runs.files import write_text
from ...runs.stamps import has_frames, read_frames, write_frames
from ..estimation.spine_estimates import GroupedEstimates
from ..intervals.answers import ProductAnswers, covariances_of, estimates_of
from ..intervals.areas import BlockAreas
from ..intervals.intervals import PublishedCells, intervals_of
from ..intervals.run_posterior import (
    RunLevels,
    RunPosterior,
    drop_posterior,
    has_posterior,
    keep_posterior,
    posterior_of,
)
from ..intervals.sizes import margins_refusal
from ..paths import spine_folder
from ..settings import TopdownSettings
from ..spine.shards import released_counts
from .tabulations.run import MARGIN_LEVEL, tables_of_run

MOST_ANSWERS = 150
"""Most answers of an included query; larger ones add no information, and take longest."""
MOST_LEVELS = 8
"""Most displayed levels of an attribute; of longer ones the largest, and all others."""
CLASSES = (1, 10, 100, 1000)
"""Released numbers of records from which a class of areas begins, after the class of zero."""
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
    """Figures from the measurements and the estimates of a run; nothing confidential."""
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
                rows.append(
                    {"geolevel": found.spine.level_names[level.name], "query": query.name, **row}
                )
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
    """Shares of released answers by position; None if all are known exactly, or all are unknown."""
    answers = ProductAnswers.of(estimates.algebra, query.matrix)
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


def read_margin_summary(run: RunDirectory, universe: str) -> MarginSummary | None:
    """The stored figures; None if they do not exist."""
    folder = _folder(run, universe)
    return read_frames(folder, MarginSummary) if has_frames(folder, MarginSummary) else None


def read_refusal(run: RunDirectory, universe: str) -> str | None:
    """The reason why a universe has no margins; None if none is stored."""
    path = _folder(run, universe) / REFUSAL
    return path.read_text(encoding="utf-8") if path.exists() else None


REFUSAL = "none.txt"
"""File with the reason, where the figures would be."""


def _folder(run: RunDirectory, universe: str) -> Path:
    return run.root / "intervals" / universe / "summary"


FIGURES, FILES = "figures", "files"
"""Kinds of pieces of the margins: figures of the report, and files for the tables."""
LEAST_APART = 1 << 13
"""Blocks from which margins are written in pieces: each has seconds of work."""


def has_margins(settings: TopdownSettings) -> bool:
    """Whether margins are requested, noise was drawn, and every answer was measured."""
    return (
        settings.release.margins
        and settings.has_all_measurements
        and not any(settings.budget_of(universe).infinite for universe in settings.run.universes)
    )


def has_all_margins(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether all margins of the run are written."""
    return all(is_written(run, settings, piece) for piece in _due(run, settings))


def universes_without_margins(run: RunDirectory, settings: TopdownSettings) -> dict[str, str]:
    """The universes without the requested margins, with the reasons; empty before the margins are
    made."""
    found = {universe: read_refusal(run, universe) for universe in settings.run.universes}
    return {universe: why for universe, why in found.items() if why is not None}


@dataclass(frozen=True)
class MarginPiece:
    """A piece of the margins: the figures of a universe for the report, or some files of margins.

    subject : the universe of figures; the tables of files.
    """

    kind: str
    subject: str


def pieces(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """All pieces of the margins of a run, the longest first."""
    files = [MarginPiece(FILES, name) for name in tables_of_run(run, settings).margin_pieces()]
    return [*files, *(MarginPiece(FIGURES, universe) for universe in settings.run.universes)]


def pieces_apart(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """The pieces that are worth a task of their own: empty for a small run, and for one whose
    spines were found to be too large for margins."""
    if not has_margins(settings) or universes_without_margins(run, settings):
        return []
    blocks = [spine_folder(run, name) / "blocks.parquet" for name in settings.run.universes]
    if max(pq.read_metadata(path).num_rows for path in blocks) < LEAST_APART:
        return []
    return pieces(run, settings)


def keep_posteriors(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Store the estimates that the pieces of the margins need, from the measurements alone, or the
    reason for their absence; returns their folder.
    """
    for universes in tables_of_run(run, settings).universe_groups:
        levels = {name: RunLevels.read(run, settings, name) for name in universes}
        if not _left_out(run, levels):
            for name in universes:
                keep_posterior(run, name, RunPosterior.of(levels.pop(name)))
    return run.root / "intervals"


def has_stored_posteriors(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether `keep_posteriors` has stored all needed estimates."""
    none = universes_without_margins(run, settings)
    return all(name in none or has_posterior(run, name) for name in settings.run.universes)


def write_piece(run: RunDirectory, settings: TopdownSettings, piece: MarginPiece) -> None:
    """Write a piece of the margins, if its universes have any; raises as `write_margins`."""
    if piece in _due(run, settings):
        _write(run, settings, [piece], _universes_of(run, settings, piece))


def restore_figures(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Restore the report's figures on the margins of a released run where they are missing; returns
    whether any were."""
    due = [piece for piece in _due(run, settings) if piece.kind == FIGURES]
    lost = [piece for piece in due if not is_written(run, settings, piece)]
    for piece in lost:
        write_piece(run, settings, piece)
    return bool(lost)


def write_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the missing pieces of the margins of the unchecked tables, and of their figures in the
    report; returns all files of margins.

    Reads measurements, constraints, public geography and, for the report, estimates. A universe
    whose estimates would not fit in memory gets none, and the run records the reason. Universes in
    the same tables get margins together or not at all; others are taken one after the other.
    """
    for universes in tables_of_run(run, settings).universe_groups:
        left = [
            piece
            for piece in pieces(run, settings)
            if set(_universes_of(run, settings, piece)) <= set(universes)
            and not is_written(run, settings, piece)
        ]
        if left:
            _write(run, settings, left, universes)
    for universe in settings.run.universes:
        drop_posterior(run, universe)
    tables = tables_of_run(run, settings)
    subjects = [piece.subject for piece in _due(run, settings) if piece.kind == FILES]
    return [file for subject in subjects for file in tables.margin_files(subject)]


def has_estimates(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether the estimates stored by `keep_posteriors` still exist."""
    return any(has_posterior(run, universe) for universe in settings.run.universes)


def is_written(run: RunDirectory, settings: TopdownSettings, piece: MarginPiece) -> bool:
    """Whether a piece of the margins is written."""
    if piece.kind == FIGURES:
        return has_frames(_folder(run, piece.subject), MarginSummary)
    files = tables_of_run(run, settings).margin_files(piece.subject)
    return all(path.exists() for path in files)


def _universes_of(
    run: RunDirectory, settings: TopdownSettings, piece: MarginPiece
) -> tuple[str, ...]:
    """The universes whose estimates a piece needs."""
    if piece.kind == FIGURES:
        return (piece.subject,)
    return tables_of_run(run, settings).universes_of(piece.subject)


def _due(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """The pieces of the finished margins, without universes in the same tables where one of them
    has no margins."""
    none = universes_without_margins(run, settings)
    groups = tables_of_run(run, settings).universe_groups
    without = {name for group in groups if not none.keys().isdisjoint(group) for name in group}
    return [
        piece
        for piece in pieces(run, settings)
        if without.isdisjoint(_universes_of(run, settings, piece))
    ]


def _write(
    run: RunDirectory,
    settings: TopdownSettings,
    pieces: Sequence[MarginPiece],
    universes: Sequence[str],
) -> None:
    """Write pieces that need the estimates of some universes."""
    if all(has_posterior(run, name) for name in universes):
        found = {name: posterior_of(run, settings, name) for name in universes}
    else:
        levels = {name: RunLevels.read(run, settings, name) for name in universes}
        if _left_out(run, levels):
            return
        found = {name: RunPosterior.of(part) for name, part in levels.items()}
    tables = tables_of_run(run, settings)
    for piece in pieces:
        if piece.kind == FIGURES:
            name = piece.subject
            summary = summarise_margins(run, settings, name, found[name])
            write_frames(_folder(run, name), summary)
        else:
            tables.write_margins(piece.subject, found)


def _left_out(run: RunDirectory, levels: Mapping[str, RunLevels]) -> bool:
    """Whether universes are too large to be in memory together; the reason is then stored."""
    sizes = {name: part.size for name, part in levels.items()}
    together = sum(size.numbers for size in sizes.values())
    for name, size in sizes.items():
        why = margins_refusal(name, size, together)
        if why is not None:
            write_text(_folder(run, name) / REFUSAL, why)
    return any(read_refusal(run, name) is not None for name in levels)
