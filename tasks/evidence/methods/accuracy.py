"""Errors of published tables: by class of count, by area, and in the tables that users read.

A figure is a row: level, measure, group, value. Tables of a level are pooled, each count once.
Withheld values are excluded from errors, and counted separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...census.queries import incidence
from ..ingest import Population, RequestedTable, Tables, ancestors

Figure = tuple[str, str, str, float]
"""Level, measure, group, value."""

CLASSES: Sequence[tuple[str, int, int]] = (
    ("0", 0, 0),
    ("1-2", 1, 2),
    ("3-9", 3, 9),
    ("10-99", 10, 99),
    ("100 and over", 100, np.iinfo(np.int64).max),
)
"""Classes of true counts: label, first and last."""
ALL = "all"
SHARES: Sequence[tuple[str, float, float]] = (
    ("below 10 % of its table", 0.0, 0.1),
    ("10 to 50 % of its table", 0.1, 0.5),
    ("50 % of its table and over", 0.5, np.inf),
)
"""Classes of counts by their true share of all that their table counts in the area: label, least
share, and the share that is above all."""
READ = "mean absolute error of what users read"
"""By which methods are compared: the mean, over levels, of the errors of some tables there."""
FAR, FAR_OFF = 0.05, "totals off by more than 5 %"
"""Totals of areas that are off by more than this share are counted."""


def accuracy(
    population: Population, published: Tables, read: Sequence[tuple[str, str]]
) -> Iterator[Figure]:
    """The figures of the accuracy of published tables, level by level; `read` are the keys of the
    tables that users read.
    """
    errors = dict[str, list[np.ndarray]]()
    for name, level in read:
        error = np.abs(published[name, level].value - population.truth[name, level])
        errors.setdefault(level, []).append(error[~np.isnan(error)])
    means = [float(own.mean()) for parts in errors.values() if len(own := np.concatenate(parts))]
    if means:
        yield ALL, READ, ALL, float(np.mean(means))
    levels = list(dict.fromkeys(table.places.level for table in population.tables))
    for level in levels:
        tables = [table for table in population.tables if table.places.level == level]
        yield from ((level, *own) for own in _errors(population, published, tables))
    for level, gap in _gaps(population.tables, published):
        yield level, "largest gap between areas and their sum", ALL, gap


def _errors(
    population: Population, published: Tables, tables: Sequence[RequestedTable]
) -> Iterator[tuple[str, str, float]]:
    """Measure, group and value of the errors of some tables, of one level.

    By class of the true count; signed by its share of all that its table counts in the area, zeros
    among the small shares: methods that move people towards the mean of areas, or that lift small
    counts and lower large ones, show here. Areas for which a table counts no persons have no
    shares, and neither have tables of one number. Totals of tables over areas that are off by more
    than 5 % are counted by class of the true total; a total with a withheld count is off.
    """
    of_tables, of_totals = [], []
    for table in tables:
        truth, value = population.truth[table.key], published[table.key].value
        total = truth.sum(axis=1, keepdims=True)
        share = np.where((total > 0) & (truth.shape[1] > 1), truth / np.maximum(total, 1), np.nan)
        of_tables.append([part.ravel() for part in (truth, value, share)])
        of_totals.append([total.ravel(), value.sum(axis=1)])
    truth, value, share = (np.concatenate(parts) for parts in zip(*of_tables, strict=True))
    is_shown, signed = ~np.isnan(value), value - truth
    groups = [(label, (truth >= low) & (truth <= high)) for label, low, high in CLASSES]
    for label, inside in [(ALL, np.ones(len(truth), dtype=bool)), *groups]:
        own = signed[inside & is_shown]
        yield "counts", label, float(inside.sum())
        if len(own):
            yield "mean absolute error", label, float(np.abs(own).mean())
            yield "99th percentile of error", label, float(np.quantile(np.abs(own), 0.99))
            yield "mean error", label, float(own.mean())
        if inside.any():
            yield "withheld", label, float(1 - is_shown[inside].mean())
    if (positive := truth > 0).any():
        yield "false zeros", ALL, float((value[positive & is_shown] == 0).sum() / positive.sum())
    if (zero := truth == 0).any():
        yield "false positives", ALL, float((value[zero & is_shown] > 0).sum() / zero.sum())
    for label, least, above in SHARES:
        own = signed[(share >= least) & (share < above) & is_shown]
        if len(own):
            yield "mean error", label, float(own.mean())
    truth, value = (np.concatenate(parts) for parts in zip(*of_totals, strict=True))
    is_off = ~(np.abs(value - truth) <= FAR * truth)
    for label, low, high in CLASSES[1:]:
        inside = (truth >= low) & (truth <= high)
        if inside.any():
            yield FAR_OFF, label, float(is_off[inside].mean())


def _gaps(tables: Sequence[RequestedTable], published: Tables) -> Iterator[tuple[str, float]]:
    """For each level, how far an area's count is from the sum over the areas within it at most."""
    largest: dict[str, float] = {}
    for large in tables:
        for small in tables:
            if small.name != large.name or len(small.places) <= len(large.places):
                continue
            parent = ancestors(small.places, large.places)
            if parent is None:
                continue
            total = incidence(parent, len(large.places)) @ published[small.key].value
            gap = np.abs(published[large.key].value - total)
            if not np.isnan(gap).all():
                level = large.places.level
                largest[level] = max(largest.get(level, 0.0), float(np.nanmax(gap)))
    yield from largest.items()
