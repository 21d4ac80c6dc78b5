"""The accuracy report: the figures of one run, or of several side by side, as one HTML file.

The figures and their report go to the confidential folder. The report is copied to where the UI and
the public look only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ....census.census import Census
from ....pages.document import NONE, Block, Details, Document, Figure, Section, Table
from ....pages.figures import bar_chart, box_chart, line_chart
from ....pages.numbers import shown_epsilon
from ....products.comparison import (
    COMPARISON,
    errors_or_refused,
    labels_of,
    write_compared,
    write_errors,
)
from ....runs.directory import RunDirectory
from ....runs.errors import InputRefused
from ...estimation.full_information import algebra_of
from ...settings import TopdownSettings
from ...workload.costs import cost_of
from .compared import compute_figures, has_truth, query_errors
from .errors import (
    ABSOLUTE_QUANTILES,
    ABSOLUTE_THRESHOLDS,
    ALL_ANSWERS,
    ALL_SIZES,
    ERROR_QUANTILES,
    FOLDER,
    PERCENT_THRESHOLDS,
    SIZE_LIMITS,
    AccuracyFigures,
    read_figures,
    size_class_names,
    write_figures,
)
from .theory import MOST_CORE

CONFIDENTIAL = "CONFIDENTIAL: tells how the release differs from the truth; do not publish"

_SHORT = {
    "county subdivision": "subdivision",
    "block group of the spine": "spine block group",
    "tract of the spine": "spine tract",
    "county of the spine": "spine county",
    "state of the spine": "spine state",
}
"""Names of levels that are too long for the side of a chart."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run, what it is called in the report, and its figures."""

    label: str
    settings: TopdownSettings
    figures: AccuracyFigures


def accuracy_document(runs: Sequence[ComparedRun]) -> Document:
    """The report of one run, or of several in the order given."""
    confidential = [CONFIDENTIAL] * any(run.settings.input.confidential for run in runs)
    stamps = dict.fromkeys([*confidential, *filter(None, (run.settings.stamp for run in runs))])
    title = f"Accuracy of {runs[0].label}" if len(runs) == 1 else "Accuracy of runs side by side"
    errors = _labelled(runs, [run.figures.errors for run in runs])
    of_quantity: dict[tuple[str, str], list[Row]] = {}
    for row in errors:
        of_quantity.setdefault((row.universe, row.quantity), []).append(row)
    settings = runs[0].settings
    areas = f"{settings.area_word}s".capitalize()
    exact = f"totals, what no {settings.area_word} can have, and structural zeros"
    meanings = {q.name: q.meaning for q in runs[0].settings.compiled_census.quantities}
    return Document(
        title,
        (
            "An error is a released count less the true one. Beside the errors stands what the "
            "budget implies: the standard deviation of the best linear unbiased estimate, which "
            "combines all noisy measurements by weighted least squares with what is declared "
            f"exactly ({exact}). It is not rounded and can be negative. Where errors are larger, "
            "the estimator and its post-processing add; where they are smaller, it helps that "
            "counts are not negative.",
            "The tables have the mean absolute error, also in percent of the true count, the bias "
            "(mean error), the root mean square error, and the implied standard deviation. "
            f"{areas} that can hold nobody take no part. Entities are on the spine if they are "
            "geounits of it.",
            *_not_implied(settings, errors),
        ),
        (
            _runs(runs),
            *_criterion(settings, _labelled(runs, [run.figures.criterion for run in runs])),
            *(
                _quantity(own, _title(*quantity, list(of_quantity)), meanings.get(quantity[1], ""))
                for quantity, own in of_quantity.items()
            ),
        ),
        "; ".join(stamps) or None,
    )


def _not_implied(settings: TopdownSettings, errors: Sequence[Row]) -> Iterator[str]:
    """For every universe none of whose standard deviations is worked out, why that is."""
    implied = {row.universe for row in errors if not np.isnan(row.predicted_standard_deviation)}
    for universe in dict.fromkeys(row.universe for row in errors):
        if universe not in implied:
            algebra = algebra_of(settings, universe, with_zeros=False)
            names = [settings.schema_of(universe).attributes[a] for a in algebra.core]
            named = f", here {len(algebra.cell_type):,} of {', '.join(names)}"
            yield (
                f"There is no implied standard deviation of {universe}: it is worked out for at "
                f"most {MOST_CORE} combinations of levels that queries or bounds tell apart "
                f"without keeping their attributes whole{named}. Without a query that coarsens an "
                "attribute of many levels there would be one."
            )


def accuracy_table(figures: AccuracyFigures) -> Table:
    """The errors of every quantity at every level, of all its answers together."""
    rows = _whole(_together(_rows(figures.errors)))
    shown = tuple((row.quantity, *_main_row(row)) for row in rows)
    return Table(("quantity", "level", "on spine", "entities", *_MAIN), shown)


BRIEF = {
    "quantity": "quantity",
    "level": "level",
    "entities": "entities",
    "mean |error|": "mean absolute error",
    "implied s.d.": "implied by the noise",
}
"""Columns of the accuracy report that a run's page shows, and what it calls them."""


def errors_of_totals(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The mean error of the first quantity, the total, at every level, beside what is implied."""
    table = errors_in_brief(run, settings)
    if table is None:
        return None
    first = table.rows[0][0] if table.rows else None
    return Table(table.headers, tuple(row for row in table.rows if row[0] == first))


def errors_in_brief(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The columns of the accuracy report that a page shows; None for confidential input."""
    figures = None if settings.input.confidential else read_figures(run)
    if figures is None:
        return None
    table = accuracy_table(figures)
    kept = [table.headers.index(name) for name in BRIEF]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(tuple(BRIEF.values()), rows)


Row = Any
"""A row of a frame, with the frame's columns."""


def _rows(frame: pd.DataFrame) -> list[Row]:
    names = frame.columns.tolist()
    values = frame.to_numpy().tolist()  # In a fifth of the time of `itertuples`.
    return [SimpleNamespace(**dict(zip(names, own, strict=True))) for own in values]


def _labelled(runs: Sequence[ComparedRun], frames: Sequence[pd.DataFrame]) -> list[Row]:
    """The rows of all runs with the column `run`, those of the first run first."""
    labelled = zip(runs, frames, strict=True)
    return [row for run, frame in labelled for row in _rows(frame.assign(run=run.label))]


def _together(errors: Sequence[Row]) -> list[Row]:
    """Those of all answers together."""
    return [row for row in errors if row.answer == ALL_ANSWERS]


def _whole(errors: Sequence[Row]) -> list[Row]:
    """Those of entities of all sizes."""
    return [row for row in errors if row.size_class == ALL_SIZES]


def _runs(runs: Sequence[ComparedRun]) -> Section:
    rows = []
    for run in runs:
        settings = run.settings
        dataset, spine = settings.privacy.dataset, settings.geography.spine
        for universe in settings.run.universes:
            plan = cost_of(settings, universe).plan
            epsilon = shown_epsilon(plan.epsilons()["tight"])
            rows.append((run.label, dataset, universe, spine, plan.bounded_rho, epsilon))
    headers = ("run", "dataset", "universe", "spine", "rho", "epsilon")
    blocks: list[Block] = [Table(headers, tuple(rows))]
    if any(run.settings.privacy.infinite for run in runs):
        blocks.append(
            "A run without noise is compared with what the budget of its settings would imply."
        )
    return Section("What is compared", tuple(blocks))


def _criterion(settings: TopdownSettings, shares: Sequence[Row]) -> list[Section]:
    if not shares:
        return []
    criterion = settings.compiled_census.redistricting
    if criterion is None:
        raise ValueError("figures of a criterion that the census does not declare")
    group = criterion.group or "largest of the groups that are declared"
    blocks: list[Block] = [
        f"The share of the {group} must be within 5 percentage points of its true share "
        "for 95% of the entities with a population of 500 or more."
    ]
    shares = [row for row in shares if row.entities > 0]
    populations = list(dict.fromkeys(row.population for row in shares))
    for population in populations:
        rows = [row for row in shares if row.population == population]
        headers = ("level", "on spine", "entities", "% within 5 points", "95%: points", "criterion")
        blocks += [
            f"{population.capitalize()}:",
            _table(
                rows,
                headers,
                lambda row: (
                    row.level,
                    _yes(row.on_spine),
                    int(row.entities),
                    _figure(100 * row.share_within),
                    _figure(row.difference_q95),
                    "met" if row.met else "MISSED",
                ),
            ),
        ]
        if population == populations[0]:
            blocks += _bars(
                rows,
                {"difference_q95": ""},
                "percentage points, 95% of entities are closer",
                "Difference of the largest group's share: 95% quantile by level",
            )
    return [Section(criterion.title or "Share of the largest group", tuple(blocks))]


_UNITS = {"units": "housing units"}
"""What the records of a universe are called, where it is not as the universe."""


def _title(universe: str, quantity: str, quantities: Sequence[tuple[str, str]]) -> str:
    """The name of a quantity, with that of its universe if others have one of this name, too."""
    alike = [name for _, name in quantities].count(quantity)
    return quantity if alike == 1 else f"{universe}: {quantity}"


def _quantity(errors: Sequence[Row], quantity: str, meaning: str) -> Section:
    """Tables and charts of one quantity."""
    together = _together(errors)
    whole = _whole(together)
    unit = _UNITS.get(errors[0].universe, errors[0].universe)
    series = {"root_mean_square_error": ""}
    if len(_labels(errors)) == 1:
        series = {
            "root_mean_square_error": "released",
            "predicted_standard_deviation": "implied by the budget",
        }
    blocks: list[Block] = [
        meaning,
        _table(whole, ("level", "on spine", "entities", *_MAIN), _main_row),
        *_bars(whole, series, unit, f"Root mean square error by level: {quantity}"),
        "How the errors are spread: quantiles of the absolute error, and the share of counts "
        "whose error is larger than a threshold, in counts or in percent of the true count.",
        _table(whole, ("level", *_SPREAD), _spread_row),
        *_boxes(whole, unit, quantity),
        "False zeros are true counts above 0 that are released as 0; false positives are true "
        "counts of 0 that are released as more.",
        _table(
            whole,
            ("level", "counts", "false zeros, %", "false positives, %"),
            lambda row: (
                row.level,
                int(row.pairs),
                _figure(100 * row.false_zeros),
                _figure(100 * row.false_positives),
            ),
        ),
        *_lines(together, unit, quantity),
    ]
    blocks += _details(errors, [row for row in together if row.size_class != ALL_SIZES], unit)
    return Section(quantity[0].upper() + quantity[1:], tuple(blocks))


def _details(errors: Sequence[Row], sized: Sequence[Row], unit: str) -> Iterator[Details]:
    """Folded tables: the rows by size class, and where there are several answers, each of them."""
    by_size = _table(
        sized,
        ("level", "size", "entities", *_MAIN),
        lambda row: (row.level, row.size_class, int(row.entities), *_main(row)),
    )
    yield Details(f"By size class: entities of so many {unit}", (by_size,))
    by_answer = [row for row in errors if row.answer != ALL_ANSWERS]
    if by_answer:
        counts = _table(
            by_answer,
            ("level", "count", "entities", *_MAIN),
            lambda row: (row.level, row.answer, int(row.entities), *_main(row)),
        )
        yield Details("Count by count", (counts,))


_MAIN = ("mean |error|", "mean %", "bias", "r.m.s.", "implied s.d.")
_SPREAD = (
    *(f"{100 * q:g}%" for q in ABSOLUTE_QUANTILES),
    "largest",
    *(f"% over {limit}" for limit in ABSOLUTE_THRESHOLDS),
    *(f"% over {limit}%" for limit in PERCENT_THRESHOLDS),
)


_DECIDING = ("mean |error|", "95%", "criterion", "false zeros, %")
"""The column of each kind of table that a reader looks for first."""

Cells = tuple[float | str, ...]


def _main(row: Row) -> Cells:
    return (
        _figure(row.mean_absolute_error),
        _figure(row.mean_absolute_percent_error),
        _figure(row.bias),
        _figure(row.root_mean_square_error),
        _figure(row.predicted_standard_deviation),
    )


def _main_row(row: Row) -> Cells:
    return (row.level, _yes(row.on_spine), int(row.entities), *_main(row))


def _spread_row(row: Row) -> Cells:
    quantiles = [getattr(row, f"absolute_q{round(100 * q):02d}") for q in ABSOLUTE_QUANTILES]
    beyond = [getattr(row, f"beyond_{limit}") for limit in ABSOLUTE_THRESHOLDS]
    beyond += [getattr(row, f"beyond_{limit}_percent") for limit in PERCENT_THRESHOLDS]
    return (
        row.level,
        *map(_figure, quantiles),
        _figure(row.largest),
        *(_figure(100 * share) for share in beyond),
    )


def _labels(rows: Sequence[Row]) -> list[str]:
    """Labels of the runs that some rows are of."""
    return list(dict.fromkeys(row.run for row in rows))


def _table(
    rows: Sequence[Row], headers: tuple[str, ...], cells: Callable[[Row], Sequence[float | str]]
) -> Table:
    """A row for each; with several runs their labels, rows of one kind together."""
    deciding = next((h for h in headers if h in _DECIDING), None)
    if len(_labels(rows)) <= 1:
        return Table(headers, tuple(tuple(cells(row)) for row in rows), deciding)
    keys = [key for key in ("level", "answer", "size_class") if hasattr(rows[0], key)]
    order = {key: list(dict.fromkeys(getattr(row, key) for row in rows)) for key in keys}
    ordered = sorted(rows, key=lambda row: [order[key].index(getattr(row, key)) for key in keys])
    shown = tuple((first, row.run, *rest) for row in ordered for first, *rest in [cells(row)])
    return Table((headers[0], "run", *headers[1:]), shown, deciding)


def _bars(rows: Sequence[Row], columns: Mapping[str, str], label: str, title: str) -> list[Figure]:
    """Bars by level: for one run those of `columns` by their names, for several the first's."""
    groups, series = _by_level(rows, columns)
    if not groups:
        return []
    svg = bar_chart([_SHORT.get(g, g) for g in groups], series, title=title, value_label=label)
    return [Figure(svg, f"{title}.")]


def _by_level(
    rows: Sequence[Row], columns: Mapping[str, str]
) -> tuple[list[str], dict[str, list[float]]]:
    """Levels at which every series has a finite value, and the values."""
    column, *_ = columns
    runs = _labels(rows)
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        own = {name: getattr(row, column) for column, name in columns.items()}
        found.setdefault(row.level, {}).update(
            own if len(runs) == 1 else {row.run: getattr(row, column)}
        )
    names = list(columns.values()) if len(runs) == 1 else runs
    levels = [
        level
        for level, values in found.items()
        if all(np.isfinite(values.get(name, np.nan)) for name in names)
    ]
    return levels, {name: [found[level][name] for level in levels] for name in names}


def _boxes(whole: Sequence[Row], unit: str, quantity: str) -> list[Figure]:
    names = [f"error_q{round(100 * q):02d}" for q in ERROR_QUANTILES]
    runs = _labels(whole)
    at = {(row.level, row.run): [getattr(row, name) for name in names] for row in whole}
    levels = dict.fromkeys(row.level for row in whole)
    common = [level for level in levels if all((level, run) in at for run in runs)]
    if not common:
        return []
    series = {run: [at[level, run] for level in common] for run in runs}
    title = f"Errors by level: {quantity}"
    svg = box_chart(
        [_SHORT.get(level, level) for level in common],
        series,
        title=title,
        value_label=f"error ({unit})",
    )
    caption = (
        f"{title}. The box holds the middle half of the errors, the line the middle 90%, the mark "
        "is the median."
    )
    return [Figure(svg, caption)]


_LINES = ("block", "block group", "tract", "place", "county subdivision")


def _lines(together: Sequence[Row], unit: str, quantity: str) -> list[Figure]:
    """Root mean square error against size class, one line a level; of several runs, blocks only."""
    several = len(_labels(together)) > 1
    start = dict(zip(size_class_names()[1:], SIZE_LIMITS, strict=True))
    rows = [row for row in together if row.size_class in start]
    shown = _LINES
    if not any(row.level in shown for row in rows):
        shown = tuple(dict.fromkeys(row.level for row in rows))[::-1]
    rows = [row for row in rows if row.level in (shown[:1] if several else shown)]
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.run if several else row.level, []).append(row)
    series = {}
    for name, line in lines.items():
        line = [row for row in line if row.root_mean_square_error > 0]
        if len(line) > 1:
            sizes = [start[row.size_class] for row in line]
            series[name] = (sizes, [row.root_mean_square_error for row in line])
    if not series:
        return []
    of = f"{shown[0]}s" if several and any(row.level in _LINES for row in rows) else "entities"
    title = f"Root mean square error of {of} by size: {quantity}"
    svg = line_chart(
        series,
        title=title,
        x_label=f"{unit} of the entity, from (log scale)",
        y_label=f"root mean square error ({unit}, log scale)",
        log_x=True,
        log_y=True,
    )
    return [Figure(svg, f"{title}.")]


def _figure(value: float) -> float | str:
    if np.isnan(value):
        return NONE
    return float(value) if np.isfinite(value) else "infinite"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


REPORT = "accuracy.html"


def accuracy_report(run: RunDirectory) -> Path:
    """Where the report of a run lies."""
    return run.confidential / FOLDER / REPORT


def write_run_accuracy(run: RunDirectory, settings: TopdownSettings) -> Path | None:
    """Compare a run with the truth and write figures and report; returns the report.

    None, and nothing is done, where the confidential histograms are gone.
    """
    if not has_truth(run, settings):
        return None
    errors = query_errors(run, settings)
    write_errors(run, pa.Table.from_pandas(errors, preserve_index=False))
    figures = compute_figures(run, settings)
    write_figures(run, figures)
    compared = [ComparedRun(run.root.name, settings, figures)]
    return _write(compared, run, REPORT)


def write_comparison(runs: Sequence[tuple[RunDirectory, TopdownSettings]]) -> Path:
    """Write the report of several runs side by side into the first one; returns its path.

    Raises InputRefused for a run whose truth and figures are both gone, and for runs of censuses
    that declare different things.
    """
    first = runs[0][1].compiled_census
    for run, settings in runs[1:]:
        if not _are_alike(first, settings.compiled_census):
            raise InputRefused(
                f"{run.root} is a run of another census than {runs[0][0].root}, whose quantities "
                "and levels it does not have; compare runs of one census."
            )
    labels = labels_of([run for run, _ in runs])
    compared = [
        ComparedRun(label, settings, _figures(run, settings))
        for label, (run, settings) in zip(labels, runs, strict=True)
    ]
    return _write(compared, runs[0][0], COMPARISON)


def _are_alike(first: Census, other: Census) -> bool:
    """Whether two censuses have the same geolevels and schemas."""
    if first.geolevels != other.geolevels or first.layout != other.layout:
        return False
    first_schemas, other_schemas = (
        {name: universe.schema for name, universe in census.universes.items()}
        for census in (first, other)
    )
    return first_schemas == other_schemas


def _write(compared: Sequence[ComparedRun], run: RunDirectory, name: str) -> Path:
    document, path = accuracy_document(compared), run.confidential / FOLDER / name
    return write_compared(document, path, run, [one.settings for one in compared])


def _figures(run: RunDirectory, settings: TopdownSettings) -> AccuracyFigures:
    if has_truth(run, settings):
        figures = compute_figures(run, settings)
        write_figures(run, figures)
        return figures
    return errors_or_refused(run, read_figures(run))
