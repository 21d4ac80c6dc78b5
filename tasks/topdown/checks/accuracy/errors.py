"""Errors of a release as one long table, their statistics, and the redistricting criterion.

An error is a released count less the true one. Statistics run over pairs of an entity and an
answer; pairs whose count is zero by declaration (a type of group quarters without facility) are
left out. A tally has a row for each answer, size class and error, with sums over the pairs that
have it: tallies of the parts of a country are put one below the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ....runs.directory import RunDirectory
from ....runs.stamps import has_frames, read_frames, write_frames

FOLDER = "accuracy"
"""Folder of everything derived from the truth, in the confidential folder of a run."""
SIZE_LIMITS = (1, 10, 100, 500, 1_000, 5_000, 10_000, 100_000)
"""Lower ends of size classes, after the class of size 0."""
ALL_SIZES = "all"
ALL_ANSWERS = "all"

ABSOLUTE_QUANTILES = (0.5, 0.9, 0.95, 0.99)
ERROR_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ABSOLUTE_THRESHOLDS = (1, 5, 10, 50)
PERCENT_THRESHOLDS = (5, 10)

Columns = Mapping[str, np.ndarray]
"""A table by its columns `(n_rows,)`."""
KEYS = ("answer", "size_class", "error")
"""Columns of a tally that identify its sums."""

CRITERION_SIZE = 500
CRITERION_POINTS = 5
CRITERION_SHARE = 0.95


def size_class_names() -> tuple[str, ...]:
    """Names of the size classes, ascending.

    >>> size_class_names()[:3]
    ('0', '1 to 9', '10 to 99')
    """
    limits = (0, *SIZE_LIMITS)
    names = [
        str(low) if high == low + 1 else f"{low:,} to {high - 1:,}"
        for low, high in zip(limits, limits[1:], strict=False)
    ]
    return (*names, f"{limits[-1]:,} and more")


@dataclass(frozen=True, eq=False)
class AccuracyFigures:
    """The figures of one run."""

    errors: pd.DataFrame
    """universe, quantity, answer, level, on_spine, size_class, entities, then `figures_of`. The
    answer is one of the quantity's, or "all" of them together, and only these have rows for each
    size class in addition to "all"."""
    criterion: pd.DataFrame
    """population, level, on_spine, then `criterion_of`."""

    @property
    def together(self) -> pd.DataFrame:
        """The errors of all answers and sizes of areas together."""
        errors = self.errors
        return errors[(errors["answer"] == ALL_ANSWERS) & (errors["size_class"] == ALL_SIZES)]


def write_figures(run: RunDirectory, figures: AccuracyFigures) -> None:
    """Store the figures in the confidential folder."""
    write_frames(run.confidential / FOLDER, figures)


def read_figures(run: RunDirectory) -> AccuracyFigures | None:
    """The figures stored by `write_figures`, None if they are missing."""
    folder = run.confidential / FOLDER
    return read_frames(folder, AccuracyFigures) if has_frames(folder, AccuracyFigures) else None


def read_together(run: RunDirectory) -> pd.DataFrame | None:
    """`AccuracyFigures.together` of the stored figures, None if they are missing."""
    figures = read_figures(run)
    return None if figures is None else figures.together


def concatenate_columns(tables: Sequence[Columns]) -> Columns:
    """The rows of tables with the same columns as one table; tables may have lists instead of
    arrays.

    >>> concatenate_columns([{"n": [1, 2]}, {"n": [3]}])
    {'n': array([1, 2, 3])}
    """
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def tally(
    truth: np.ndarray,
    released: np.ndarray,
    variance: np.ndarray,
    is_pair: np.ndarray,
    size: np.ndarray,
) -> Columns:
    """The errors of entities.

    Args:
        truth, released, variance: `(n_entities, n_answers)` counts, and predicted variances.
        is_pair: `(n_entities, n_answers)` bool, whether each count may differ from 0.
        size: `(n_entities,)` true number of records.

    Returns `KEYS`, answers and size classes by their numbers, and sums: entities (in the row of the
    first answer that they have a pair of), pairs, with_any (whose true count is not 0), percent
    (absolute errors of these), beyond_5_percent and beyond_10_percent, false_zeros,
    false_positives, variance.
    """
    classes, first = np.searchsorted(SIZE_LIMITS, size, side="right"), is_pair.argmax(axis=1)
    found = []
    for answer in range(truth.shape[1]):
        rows = np.flatnonzero(is_pair[:, answer])
        true, own = truth[rows, answer], released[rows, answer]
        has_any, percent = true > 0, np.zeros(len(rows))
        np.divide(100 * np.abs(own - true), true, where=has_any, out=percent)
        sums = {
            "entities": first[rows] == answer,
            "pairs": np.ones(len(rows)),
            "with_any": has_any,
            "percent": percent,
            **{f"beyond_{limit}_percent": percent > limit for limit in PERCENT_THRESHOLDS},
            "false_zeros": has_any & (own == 0),
            "false_positives": ~has_any & (own > 0),
            "variance": variance[rows, answer],
        }
        errors, of_error = np.unique(own - true, return_inverse=True)
        key = classes[rows] * max(len(errors), 1) + of_error
        keys, where = np.unique(key, return_inverse=True)
        size_class, error = np.divmod(keys, max(len(errors), 1))
        columns = np.full(len(keys), answer), size_class, errors[error]
        found.append(
            dict(zip(KEYS, columns, strict=True))
            | {name: np.bincount(where, own, len(keys)) for name, own in sums.items()}
        )
    return concatenate_columns(found)


def error_rows(
    tallied: Columns, head: Mapping[str, Any], answers: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The rows of `AccuracyFigures.errors` of a quantity at a level, each of which begins with
    `head`, from a tally of all its pairs; `answers` are the labels of its answers."""
    chosen = [(ALL_ANSWERS, ALL_SIZES, np.ones(len(tallied["pairs"]), dtype=bool))]
    for number, name in enumerate(size_class_names()):
        chosen.append((ALL_ANSWERS, name, tallied["size_class"] == number))
    if len(answers) > 1:
        for number, label in enumerate(answers):
            chosen.append((label, ALL_SIZES, tallied["answer"] == number))
    for answer, size_class, is_own in chosen:
        if is_own.any():
            rows = {name: column[is_own] for name, column in tallied.items()}
            entities = int(rows["entities" if answer == ALL_ANSWERS else "pairs"].sum())
            row = {"answer": answer, "size_class": size_class, "entities": entities}
            yield {**head, **row, **figures_of(rows)}


def figures_of(tallied: Columns) -> dict[str, float]:
    """Statistics of all pairs of a tally; NaN where no pair gives one.

    pairs : number of pairs.
    mean_absolute_error, root_mean_square_error, bias : in counts; bias is the mean error.
    predicted_standard_deviation : root mean of the predicted variances.
    mean_absolute_percent_error : over pairs whose true count is not 0, in percent of it.
    absolute_q50, ..., largest : quantiles of the absolute error.
    error_q05, ... : quantiles of the error.
    beyond_5, ... : share of the pairs whose absolute error is larger.
    beyond_5_percent, ... : share of the pairs with a true count above 0 whose error is larger.
    false_zeros : share of the true counts above 0 that are released as 0.
    false_positives : share of the true counts of 0 that are released as more.
    """
    errors, counts = _count_values(tallied["error"], tallied["pairs"])
    absolute, of_absolute = _count_values(np.abs(errors), counts)
    sums = {name: float(own.sum()) for name, own in tallied.items() if name not in KEYS}
    n, n_with_any = int(counts.sum()), int(sums["with_any"])
    squares = float((counts * errors.astype(np.float64) ** 2).sum())
    figures = {
        "pairs": n,
        "mean_absolute_error": _share(int((of_absolute * absolute).sum()), n),
        "root_mean_square_error": float(np.sqrt(_share(squares, n))),
        "predicted_standard_deviation": float(np.sqrt(_share(sums["variance"], n))),
        "bias": _share(int((counts * errors).sum()), n),
        "mean_absolute_percent_error": _share(sums["percent"], n_with_any),
        "largest": float(absolute[-1]) if n else np.nan,
    }
    figures |= _quantiles("absolute", absolute, of_absolute, ABSOLUTE_QUANTILES)
    figures |= _quantiles("error", errors, counts, ERROR_QUANTILES)
    for limit in ABSOLUTE_THRESHOLDS:
        figures[f"beyond_{limit}"] = _share(int(of_absolute[absolute > limit].sum()), n)
    for name in (*(f"beyond_{limit}_percent" for limit in PERCENT_THRESHOLDS), "false_zeros"):
        figures[name] = _share(sums[name], n_with_any)
    return figures | {"false_positives": _share(sums["false_positives"], n - n_with_any)}


def largest_groups(truth: np.ndarray, released: np.ndarray) -> Columns:
    """Error in the share of the truly largest group in every entity of `CRITERION_SIZE` people or
    more, from counts `(n_entities, n_groups)` of groups that partition the population.

    Returns points, the error in percentage points, and is_within, whether it is within the
    criterion.
    """
    population = truth.sum(axis=1)
    is_large = population >= CRITERION_SIZE
    truth, released, population = truth[is_large], released[is_large], population[is_large]
    row, largest = np.arange(len(truth)), truth.argmax(axis=1)
    of_largest, of_truth = released[row, largest], truth[row, largest]
    released_population = released.sum(axis=1)
    # Crosswise products keep the comparison in integers.
    difference = np.abs(of_largest * population - of_truth * released_population)
    whole = released_population * population
    is_within = (100 * difference <= CRITERION_POINTS * whole) & (released_population > 0)
    points = np.full(len(truth), np.inf)
    np.divide(100 * difference, whole, out=points, where=whole > 0)
    return {"points": points, "is_within": is_within}


def criterion_of(largest: Columns) -> dict[str, float | bool]:
    """Whether the largest group's share of a population is accurate enough for redistricting,
    from `largest_groups` of all its entities.

    Over entities whose true population is 500 or more, the released share of the group that is
    truly largest must be within 5 percentage points of its true share for 95 percent of them. An
    entity whose released population is 0 fails.

    Returns:
        entities (of that size), share_within (NaN without any), difference_q95 (the 95 percent
        quantile of the points), met (true without any).
    """
    points, is_within = largest["points"], largest["is_within"]
    share_within = _share(int(is_within.sum()), len(is_within))
    return {
        "entities": len(points),
        "share_within": share_within,
        "difference_q95": float(np.quantile(points, CRITERION_SHARE, method="inverted_cdf"))
        if len(points)
        else np.nan,
        "met": bool(len(points) == 0 or share_within >= CRITERION_SHARE),
    }


def _share(total: float, n: int) -> float:
    return float(total / n) if n else np.nan


def _count_values(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, ascending, and their total counts."""
    distinct, where = np.unique(values, return_inverse=True)
    return distinct, np.bincount(where, counts, minlength=len(distinct)).astype(np.int64)


def _quantiles(
    name: str, values: np.ndarray, counts: np.ndarray, quantiles: tuple[float, ...]
) -> Mapping[str, float]:
    """Quantiles, between the values where they fall between two, of ascending values repeated
    `counts` times each."""
    names = [f"{name}_q{round(100 * quantile):02d}" for quantile in quantiles]
    if not len(values):
        return dict.fromkeys(names, np.nan)
    ends = np.cumsum(counts)
    place = np.array(quantiles) * (ends[-1] - 1)
    below = np.floor(place).astype(np.int64)
    at = np.minimum([below, below + 1], ends[-1] - 1)
    low, high = values[np.searchsorted(ends, at, side="right")].astype(np.float64)
    return dict(zip(names, (low + (high - low) * (place - below)).tolist(), strict=True))
