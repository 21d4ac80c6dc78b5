"""The accuracy report: the figures of one run, or of several side by side, as one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from ....pages.document import NONE, Block, Details, Document, Figure, Section, Table
from ....pages.figures import bar_chart, box_chart, line_chart
from ....runs.directory import RunDirectory
from ...estimation.full_information import algebra_of
from ...settings import TopdownSettings
from ...workload.costs import budget_report
from .errors import (
    ABSOLUTE_QUANTILES,
    ABSOLUTE_THRESHOLDS,
    ALL_ANSWERS,
    ALL_SIZES,
    ERROR_QUANTILES,
    PERCENT_THRESHOLDS,
    SIZE_LIMITS,
    size_class_names,
)
from .figures import AccuracyFigures, read_figures
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
    stamps = []
    if any(run.settings.input.confidential for run in runs):
        stamps.append(CONFIDENTIAL)
    of_runs = [run.settings.stamp for run in runs]
    stamps += dict.fromkeys(stamp for stamp in of_runs if stamp is not None)
    title = f"Accuracy of {runs[0].label}" if len(runs) == 1 else "Accuracy of runs side by side"
    errors = _labelled(runs, [run.figures.errors for run in runs])
    quantities = list(dict.fromkeys(zip(errors["universe"], errors["quantity"], strict=True)))
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
                _quantity(
                    errors[(errors["universe"] == universe) & (errors["quantity"] == quantity)],
                    _title(universe, quantity, quantities),
                    meanings.get(quantity, ""),
                )
                for universe, quantity in quantities
            ),
        ),
        "; ".join(stamps) or None,
    )


def _not_implied(settings: TopdownSettings, errors: pd.DataFrame) -> Iterator[str]:
    """For every universe none of whose standard deviations is worked out, why that is."""
    for universe, own in errors.groupby("universe", sort=False):
        if own["predicted_standard_deviation"].isna().all():
            algebra = algebra_of(settings, str(universe), with_zeros=False)
            names = [settings.schema_of(str(universe)).attributes[a] for a in algebra.core]
            named = f", here {len(algebra.cell_type):,} of {', '.join(names)}"
            yield (
                f"There is no implied standard deviation of {universe}: it is worked out for at "
                f"most {MOST_CORE} combinations of levels that queries or bounds tell apart "
                f"without keeping their attributes whole{named}. Without a query that coarsens an "
                "attribute of many levels there would be one."
            )


def accuracy_table(figures: AccuracyFigures) -> Table:
    """The errors of every quantity at every level, of all its answers together."""
    errors = figures.errors
    rows = errors[(errors["answer"] == ALL_ANSWERS) & (errors["size_class"] == ALL_SIZES)]
    shown = tuple((row.quantity, *_main_row(row)) for row in rows.itertuples())
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


def _labelled(runs: Sequence[ComparedRun], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all runs with the column `run`, levels of the first run first."""
    frame = pd.concat([f.assign(run=run.label) for run, f in zip(runs, frames, strict=True)])
    return frame.reset_index(drop=True)


def _runs(runs: Sequence[ComparedRun]) -> Section:
    rows = []
    for run in runs:
        settings = run.settings
        for universe in settings.run.universes:
            cost = budget_report(settings.budget_of(universe), settings.schema_of(universe))
            epsilon = cost["epsilon"]["tight"]
            rows.append(
                (
                    run.label,
                    settings.privacy.dataset,
                    universe,
                    settings.geography.spine,
                    cost["rho"],
                    epsilon if isinstance(epsilon, str) else f"{epsilon:.2f}",
                )
            )
    headers = ("run", "dataset", "universe", "spine", "rho", "epsilon")
    blocks: list[Block] = [Table(headers, tuple(rows))]
    if any(run.settings.privacy.infinite for run in runs):
        blocks.append(
            "A run without noise is compared with what the budget of its settings would imply."
        )
    return Section("What is compared", tuple(blocks))


def _criterion(settings: TopdownSettings, frame: pd.DataFrame) -> list[Section]:
    if frame.empty:
        return []
    criterion = settings.compiled_census.redistricting
    if criterion is None:
        raise ValueError("figures of a criterion that the census does not declare")
    group = criterion.group or "largest of the groups that are declared"
    blocks: list[Block] = [
        f"The share of the {group} must be within 5 percentage points of its true share "
        "for 95% of the entities with a population of 500 or more."
    ]
    frame = frame[frame["entities"] > 0]
    for population, rows in frame.groupby("population", sort=False):
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
        if population == frame["population"].iloc[0]:
            blocks += _bars(
                rows.assign(points=rows["difference_q95"]),
                {"points": ""},
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


def _quantity(errors: pd.DataFrame, quantity: str, meaning: str) -> Section:
    """Tables and charts of one quantity."""
    together = errors[errors["answer"] == ALL_ANSWERS]
    whole = together[together["size_class"] == ALL_SIZES]
    unit = _UNITS.get(errors["universe"].iloc[0], errors["universe"].iloc[0])
    only = len(set(errors["run"])) == 1
    series = {"root_mean_square_error": ""}
    if only:
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
    blocks += _details(errors, together[together["size_class"] != ALL_SIZES], unit)
    return Section(quantity[0].upper() + quantity[1:], tuple(blocks))


def _details(errors: pd.DataFrame, sized: pd.DataFrame, unit: str) -> Iterator[Details]:
    """Folded tables: the rows by size class, and where there are several answers, each of them."""
    by_size = _table(
        sized,
        ("level", "size", "entities", *_MAIN),
        lambda row: (row.level, row.size_class, int(row.entities), *_main(row)),
    )
    yield Details(f"By size class: entities of so many {unit}", (by_size,))
    by_answer = errors[errors["answer"] != ALL_ANSWERS]
    if not by_answer.empty:
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

Row = Any
"""A row of a frame, with the frame's columns."""
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


def _table(
    frame: pd.DataFrame, headers: tuple[str, ...], cells: Callable[[Row], Sequence[float | str]]
) -> Table:
    """A row for each of the frame's; with several runs their labels, rows of one kind together."""
    several = frame["run"].nunique() > 1
    if several:
        keys = [key for key in ("level", "answer", "size_class") if key in frame]
        order = {key: list(dict.fromkeys(frame[key])) for key in keys}
        ranks = pd.DataFrame({key: frame[key].map(order[key].index) for key in keys})
        frame = frame.loc[ranks.sort_values(keys, kind="stable").index]
    rows = []
    names = frame.columns.tolist()
    for values in frame.to_numpy().tolist():  # In a fifth of the time of `itertuples`.
        row = SimpleNamespace(**dict(zip(names, values, strict=True)))
        shown = cells(row)
        rows.append((shown[0], row.run, *shown[1:]) if several else tuple(shown))
    headers = (headers[0], "run", *headers[1:]) if several else headers
    return Table(headers, tuple(rows), next((h for h in headers if h in _DECIDING), None))


def _bars(frame: pd.DataFrame, columns: Mapping[str, str], label: str, title: str) -> list[Figure]:
    """Bars by level: for one run those of `columns` by their names, for several the first's."""
    groups, series = _by_level(frame, columns)
    if not groups:
        return []
    svg = bar_chart([_SHORT.get(g, g) for g in groups], series, title=title, value_label=label)
    return [Figure(svg, f"{title}.")]


def _by_level(
    frame: pd.DataFrame, columns: Mapping[str, str]
) -> tuple[list[str], dict[str, list[float]]]:
    """Levels at which every series has a finite value, and the values."""
    column, *_ = columns
    if frame["run"].nunique() == 1:
        wide = frame.set_index("level")[list(columns)].rename(columns=columns)
    else:
        wide = frame.pivot(index="level", columns="run", values=column)
        wide = wide.loc[frame["level"].unique(), frame["run"].unique()]
    wide = wide[np.isfinite(wide).all(axis=1)]
    return list(wide.index), {name: wide[name].tolist() for name in wide}


def _boxes(whole: pd.DataFrame, unit: str, quantity: str) -> list[Figure]:
    names = [f"error_q{round(100 * q):02d}" for q in ERROR_QUANTILES]
    runs = list(dict.fromkeys(whole["run"]))
    common = [
        level
        for level in dict.fromkeys(whole["level"])
        if (whole["level"] == level).sum() == len(runs)
    ]
    if not common:
        return []
    series = {}
    for run in runs:
        rows = whole[whole["run"] == run].set_index("level")
        series[run] = rows.loc[common, names].to_numpy().tolist()
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


def _lines(together: pd.DataFrame, unit: str, quantity: str) -> list[Figure]:
    """Root mean square error against size class, one line a level; of several runs, blocks only."""
    several = together["run"].nunique() > 1
    start = dict(zip(size_class_names()[1:], SIZE_LIMITS, strict=True))
    rows = together[together["size_class"].isin(start)]
    shown = _LINES
    if not rows["level"].isin(shown).any():
        shown = tuple(dict.fromkeys(rows["level"]))[::-1]
    rows = rows[rows["level"].isin(shown[:1] if several else shown)]
    series = {}
    for name, line in rows.groupby("run" if several else "level", sort=False):
        line = line[line["root_mean_square_error"] > 0]
        if len(line) > 1:
            sizes = [start[size_class] for size_class in line["size_class"]]
            series[name] = (sizes, line["root_mean_square_error"].tolist())
    if not series:
        return []
    of = f"{shown[0]}s" if several and rows["level"].isin(_LINES).any() else "entities"
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
