"""The accuracy report: the figures of a run as one HTML file.

The figures and their report go to the confidential folder. The report is copied to where the UI and
the public look only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ....pages.document import Document, Table, document_of
from ....pages.numbers import format_epsilon
from ....products.comparison import CONFIDENTIAL, errors_table, write_comparison_page
from ....runs.directory import RunDirectory
from ....runs.files import read_declared
from ...estimation.full_information import algebra_of
from ...settings import TopdownSettings
from ...workload.costs import cost_of
from .compared import compute_figures, has_truth
from .errors import ALL_ANSWERS, ALL_SIZES, FOLDER, AccuracyFigures, write_figures
from .theory import MOST_CORE

_COLUMNS = read_declared(Path(__file__).parent / "presets" / "columns.toml")
_ERRORS = _COLUMNS["errors"]
COMPARED = _ERRORS | {name: words for name, words in _COLUMNS["false"].items() if name != "level"}
IMPLIED = "predicted_standard_deviation"


def accuracy_document(label: str, settings: TopdownSettings, figures: AccuracyFigures) -> Document:
    """The report of a run with this label."""
    stamps = [CONFIDENTIAL] * settings.input.confidential + [settings.stamp or ""]
    errors, criterion = format_rows(figures.errors), format_rows(figures.criterion)
    shares: dict[str, pd.DataFrame] = {}
    if len(criterion):
        shares = dict(iter(criterion[criterion["entities"] > 0].groupby("population", sort=False)))
    return document_of(
        "topdown/templates/accuracy.md.j2",
        "; ".join(filter(None, stamps)) or None,
        folded=True,
        settings=settings,
        label=label,
        most_core=MOST_CORE,
        unpredicted={
            universe: _core_of(settings, str(universe))
            for universe, implied in errors.groupby("universe", sort=False)[IMPLIED]
            if implied.isna().all()
        },
        runs=[_facts_of_run(label, settings, universe) for universe in settings.run.universes],
        criterion=settings.compiled_census.declared.redistricting if len(criterion) else None,
        populations={
            population: errors_table(rows, _COLUMNS["criterion"], "criterion")
            for population, rows in shares.items()
        },
        quantities=list(_quantities(settings, errors)),
    )


def _core_of(settings: TopdownSettings, universe: str) -> dict[str, Any]:
    """The number of combinations that a prediction of a universe has, and their attributes."""
    algebra = algebra_of(settings, universe, with_zeros=False)
    attributes = settings.schema_of(universe).attributes
    return {"n": len(algebra.cell_type), "attributes": [attributes[axis] for axis in algebra.core]}


def format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in percent and words."""
    if rows.empty:
        return rows
    shares = [name for name in rows if name.startswith(("beyond_", "false_", "share_"))]
    words = {"on_spine": {True: "yes", False: "no"}, "met": {True: "met", False: "MISSED"}}
    shown = {name: rows[name].map(own) for name, own in words.items() if name in rows}
    return rows.assign(**{name: rows[name] * 100 for name in shares}, **shown)


def _facts_of_run(label: str, settings: TopdownSettings, universe: str) -> dict[str, str]:
    plan = cost_of(settings, universe).plan
    return {
        "run": label,
        "dataset": settings.privacy.dataset,
        "universe": universe,
        "spine": settings.geography.spine,
        "rho": plan.bounded_rho,
        "epsilon": format_epsilon(plan.epsilons()["tight"]),
    }


_RECORDS = {"units": "housing units"}
"""Words for the records of a universe, where they differ from its name."""


def _quantities(settings: TopdownSettings, errors: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Tables of every quantity, whose title has its universe's if others have the same name."""
    meanings = {q.name: q.meaning for q in settings.compiled_census.declared.quantities}
    names = errors[["universe", "quantity"]].drop_duplicates()["quantity"]
    for (universe, name), own in errors.groupby(["universe", "quantity"], sort=False):
        together = own[own["answer"] == ALL_ANSWERS]
        is_whole = together["size_class"] == ALL_SIZES
        whole, by_answer = together[is_whole], own[own["answer"] != ALL_ANSWERS]

        def errors_by(column: str, words: str, rows: pd.DataFrame) -> Table:
            columns = {"level": "level", column: words, "entities": "entities", **_ERRORS}
            return errors_table(rows, columns, _ERRORS["mean_absolute_error"])

        yield {
            "title": name if (names == name).sum() == 1 else f"{universe}: {name}",
            "meaning": meanings.get(name, ""),
            "records": _RECORDS.get(universe, universe),
            "errors": errors_by("on_spine", "on spine", whole),
            "spread": errors_table(whole, _COLUMNS["spread"], "95%"),
            "false": errors_table(whole, _COLUMNS["false"], "false zeros, %"),
            "by_size": errors_by("size_class", "size", together[~is_whole]),
            "by_count": errors_by("answer", "count", by_answer) if len(by_answer) else None,
        }


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
    figures = compute_figures(run, settings)
    write_figures(run, figures)
    document = accuracy_document(run.root.name, settings, figures)
    return write_comparison_page(document, accuracy_report(run), run, [settings])
