"""The accuracy report: the figures of a run as one HTML file, and runs side by side.

The figures and their report go to the confidential folder. The report is copied to where the UI and
the public look only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from ....pages.document import Block, Details, Document, Section, Table
from ....pages.numbers import format_epsilon
from ....products.comparison import (
    CONFIDENTIAL,
    ComparedRun,
    errors_table,
    require_errors,
    write_comparison_page,
    write_errors,
)
from ....products.comparison import write_comparison as write_comparison_of
from ....runs.directory import RunDirectory
from ...estimation.full_information import algebra_of
from ...settings import TopdownSettings
from ...workload.costs import cost_of
from .compared import compute_figures, has_truth, query_errors
from .errors import (
    ABSOLUTE_QUANTILES,
    ABSOLUTE_THRESHOLDS,
    ALL_ANSWERS,
    ALL_SIZES,
    FOLDER,
    PERCENT_THRESHOLDS,
    AccuracyFigures,
    read_figures,
    write_figures,
)
from .theory import MOST_CORE


def accuracy_document(label: str, settings: TopdownSettings, figures: AccuracyFigures) -> Document:
    """The report of a run with this label."""
    stamps = [CONFIDENTIAL] * settings.input.confidential + [settings.stamp or ""]
    errors = _format_rows(figures.errors)
    of_quantity: dict[tuple[str, str], pd.DataFrame] = {
        (str(own["universe"].iloc[0]), str(own["quantity"].iloc[0])): own
        for _, own in errors.groupby(["universe", "quantity"], sort=False)
    }
    areas = f"{settings.area_word}s".capitalize()
    exact = f"totals, types that a {settings.area_word} cannot have, and structural zeros"
    meanings = {q.name: q.meaning for q in settings.compiled_census.quantities}
    return Document(
        f"Accuracy of {label}",
        (
            "An error is a released count less the true one. The tables also show the standard "
            "deviation that the budget implies for the best linear unbiased estimate, which "
            "combines all noisy measurements by weighted least squares with the facts declared "
            f"exactly ({exact}). It is not rounded and can be negative. Where errors are larger, "
            "the estimator and its post-processing add; where they are smaller, it helps that "
            "counts are not negative.",
            "The tables have the mean absolute error, also in percent of the true count, the bias "
            "(mean error), the root mean square error, and the implied standard deviation. "
            f"{areas} that cannot have residents are left out. Entities are on the spine if they "
            "are geounits of it.",
            *_reasons_without_deviations(settings, errors),
        ),
        (
            _run(label, settings),
            *_criterion(settings, _format_rows(figures.criterion)),
            *(
                _quantity(own, _title(*quantity, list(of_quantity)), meanings.get(quantity[1], ""))
                for quantity, own in of_quantity.items()
            ),
        ),
        "; ".join(filter(None, stamps)) or None,
        folded=True,
    )


def _reasons_without_deviations(settings: TopdownSettings, errors: pd.DataFrame) -> Iterator[str]:
    """Reasons for every universe without implied standard deviations."""
    for universe, implied in errors.groupby("universe", sort=False)[IMPLIED]:
        if implied.isna().all():
            algebra = algebra_of(settings, universe, with_zeros=False)
            names = [settings.schema_of(universe).attributes[a] for a in algebra.core]
            named = f", here {len(algebra.cell_type):,} of {', '.join(names)}"
            yield (
                f"There is no implied standard deviation of {universe}: it is computed for at "
                f"most {MOST_CORE} combinations of levels that queries or bounds distinguish "
                f"without keeping their attributes whole{named}. Without a query that coarsens an "
                "attribute of many levels there would be one."
            )


IMPLIED = "predicted_standard_deviation"
_HEAD = {"level": "level", "on_spine": "on spine", "entities": "entities"}
_MAIN = {
    "mean_absolute_error": "mean |error|",
    "mean_absolute_percent_error": "mean %",
    "bias": "bias",
    "root_mean_square_error": "r.m.s.",
    IMPLIED: "implied s.d.",
}
_SPREAD = {
    "level": "level",
    **{f"absolute_q{round(100 * q):02d}": f"{100 * q:g}%" for q in ABSOLUTE_QUANTILES},
    "largest": "largest",
    **{f"beyond_{limit}": f"% over {limit}" for limit in ABSOLUTE_THRESHOLDS},
    **{f"beyond_{limit}_percent": f"% over {limit}%" for limit in PERCENT_THRESHOLDS},
}
_FALSE = {
    "level": "level",
    "pairs": "counts",
    "false_zeros": "false zeros, %",
    "false_positives": "false positives, %",
}
_COMPARED = {**_MAIN, **{name: words for name, words in _FALSE.items() if name != "level"}}
_CRITERION = {
    **_HEAD,
    "share_within": "% within 5 points",
    "difference_q95": "95%: points",
    "met": "criterion",
}
_DECIDING = ("mean |error|", "95%", "criterion", "false zeros, %")
"""The main column of each kind of table."""


def _format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in percent and words."""
    if rows.empty:
        return rows
    shares = [name for name in rows if name.startswith(("beyond_", "false_", "share_"))]
    words = {"on_spine": {True: "yes", False: "no"}, "met": {True: "met", False: "MISSED"}}
    shown = {name: rows[name].map(own) for name, own in words.items() if name in rows}
    return rows.assign(**{name: rows[name] * 100 for name in shares}, **shown)


def _run(label: str, settings: TopdownSettings) -> Section:
    rows = []
    for universe in settings.run.universes:
        plan = cost_of(settings, universe).plan
        epsilon = format_epsilon(plan.epsilons()["tight"])
        spine = settings.geography.spine
        rows.append((label, settings.privacy.dataset, universe, spine, plan.bounded_rho, epsilon))
    headers = ("run", "dataset", "universe", "spine", "rho", "epsilon")
    blocks: list[Block] = [Table(headers, tuple(rows))]
    if settings.privacy.infinite:
        blocks.append(
            "A run without noise is compared with the errors that its budget would imply."
        )
    return Section("Compared run", tuple(blocks))


def _criterion(settings: TopdownSettings, shares: pd.DataFrame) -> list[Section]:
    if shares.empty:
        return []
    criterion = settings.compiled_census.redistricting
    if criterion is None:
        raise ValueError("figures of a criterion that the census does not declare")
    group = criterion.group or "largest of the groups that are declared"
    blocks: list[Block] = [
        f"The share of the {group} must be within 5 percentage points of its true share "
        "for 95% of the entities with a population of 500 or more."
    ]
    for population, rows in shares[shares["entities"] > 0].groupby("population", sort=False):
        blocks += [f"{str(population).capitalize()}:", _table(rows, _CRITERION)]
    return [Section(criterion.title or "Share of the largest group", tuple(blocks))]


_UNITS = {"units": "housing units"}
"""Words for the records of a universe, where they differ from its name."""


def _title(universe: str, quantity: str, quantities: Sequence[tuple[str, str]]) -> str:
    """The name of a quantity, with its universe's if others have the same name."""
    alike = [name for _, name in quantities].count(quantity)
    return quantity if alike == 1 else f"{universe}: {quantity}"


def _quantity(errors: pd.DataFrame, quantity: str, meaning: str) -> Section:
    """Tables of one quantity."""
    together = errors[errors["answer"] == ALL_ANSWERS]
    is_whole = together["size_class"] == ALL_SIZES
    whole = together[is_whole]
    universe = errors["universe"].iloc[0]
    unit = _UNITS.get(universe, universe)
    by_size = {"level": "level", "size_class": "size", "entities": "entities", **_MAIN}
    details = {f"By size class: entities of so many {unit}": (together[~is_whole], by_size)}
    by_answer = errors[errors["answer"] != ALL_ANSWERS]
    if len(by_answer):
        by_count = {"level": "level", "answer": "count", "entities": "entities", **_MAIN}
        details["Count by count"] = by_answer, by_count
    blocks: tuple[Block, ...] = (
        meaning,
        _table(whole, _HEAD | _MAIN),
        "How the errors are spread: quantiles of the absolute error, and the share of counts "
        "whose error is larger than a threshold, in counts or in percent of the true count.",
        _table(whole, _SPREAD),
        "False zeros are true counts above 0 that are released as 0; false positives are true "
        "counts of 0 that are released as more.",
        _table(whole, _FALSE),
        *(Details(words, (_table(*own),)) for words, own in details.items()),
    )
    return Section(quantity[0].upper() + quantity[1:], blocks)


def _table(rows: pd.DataFrame, columns: Mapping[str, str]) -> Table:
    """A row for each, of columns under headers."""
    deciding = next((header for header in columns.values() if header in _DECIDING), None)
    return errors_table(rows, columns, deciding)


REPORT = "accuracy.html"


def accuracy_report(run: RunDirectory) -> Path:
    """Path of the report of a run."""
    return run.confidential / FOLDER / REPORT


def write_run_accuracy(run: RunDirectory, settings: TopdownSettings) -> Path | None:
    """Compare a run with the truth and write figures and report; returns the report.

    Returns None, and does nothing, if the confidential histograms are gone.
    """
    if not has_truth(run, settings):
        return None
    errors = query_errors(run, settings)
    write_errors(run, pa.Table.from_pandas(errors, preserve_index=False))
    figures = compute_figures(run, settings)
    write_figures(run, figures)
    document = accuracy_document(run.root.name, settings, figures)
    return write_comparison_page(document, accuracy_report(run), run, [settings])


def write_comparison(runs: Sequence[tuple[RunDirectory, TopdownSettings]]) -> Path:
    """Write the errors of several runs side by side into the first one; returns the page's path.

    Raises InputRefused for a run whose truth and figures are both gone.
    """
    compared = []
    for run, settings in runs:
        figures = read_figures(run)
        if has_truth(run, settings):
            figures = compute_figures(run, settings)
            write_figures(run, figures)
        errors = _format_rows(require_errors(run, figures).together)
        facts = {"dataset": settings.privacy.dataset, "spine": settings.geography.spine}
        compared.append(ComparedRun(run, settings, facts, errors))
    return write_comparison_of(compared, ("universe", "quantity", "level"), _COMPARED)
