"""Comparison of finished runs of a product with the truth, side by side, on one page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..pages.document import NONE, Document, Section, Table
from ..runs.directory import RunDirectory
from ..runs.files import write_page
from ..runs.settings import ProductSettings
from ..runs.stamps import write_parquet

COMPARISON = "comparison.html"
CONFIDENTIAL = "CONFIDENTIAL: shows how the release differs from the truth; do not publish"

ACCURACY = "accuracy.parquet"
"""Errors of a run, in its confidential folder."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run that is compared.

    facts : facts about the run, in words, by label.
    errors : its figures; the key columns are the same for all runs.
    """

    run: RunDirectory
    settings: ProductSettings
    facts: Mapping[str, str]
    errors: pd.DataFrame


def write_errors(run: RunDirectory, errors: pa.Table) -> None:
    """Keep the errors of a release in the run's confidential folder."""
    write_parquet(run.confidential / ACCURACY, errors)


def read_errors(run: RunDirectory) -> pd.DataFrame | None:
    """The stored errors; None if the run has no file of them."""
    path = run.confidential / ACCURACY
    return pq.read_table(path).to_pandas() if path.exists() else None


def errors_table(
    errors: pd.DataFrame, columns: Mapping[str, str], deciding: str | None = None
) -> Table:
    """Errors as a table of a report; `columns` are the headers of the shown columns."""
    rows = errors[list(columns)].itertuples(index=False, name=None)
    shown = (
        tuple(NONE if pd.isna(x) else "infinite" if x == math.inf else x for x in row)
        for row in rows
    )
    return Table(tuple(columns.values()), tuple(shown), deciding)


def write_comparison(
    compared: Sequence[ComparedRun], keys: Sequence[str], figures: Mapping[str, str]
) -> Path:
    """Write the comparison into the first run's confidential folder, and return its path.

    If no input is confidential, it is copied to the first run's report folder, and the copy's path
    is returned. `keys` are the columns that identify a quantity, `figures` the columns to
    compare, with their descriptions.
    """
    document = comparison_document(compared, keys, figures)
    first = compared[0].run
    return write_comparison_page(
        document, first.confidential / COMPARISON, first, [one.settings for one in compared]
    )


def write_comparison_page(
    document: Document, path: Path, run: RunDirectory, settings: Iterable[ProductSettings]
) -> Path:
    """Write a page on comparisons with the truth to a path in a run's confidential folder; returns
    the path or, where the input of none of the settings is confidential, the path of a copy next to
    the run's public report."""
    write_page(path, document)
    if any(own.input.confidential for own in settings):
        return path
    return write_page(run.report.parent / path.name, document)


def comparison_document(
    compared: Sequence[ComparedRun], keys: Sequence[str], figures: Mapping[str, str]
) -> Document:
    """The facts of the runs, and one table a figure, with a column for each run."""
    labels = [one.run.root.name for one in compared]
    if len(set(labels)) < len(labels):
        labels = [str(one.run.root) for one in compared]
    about = list(dict.fromkeys(name for one in compared for name in one.facts))
    rows = tuple((name, *(one.facts.get(name, "") for one in compared)) for name in about)
    sections = [Section("The runs", (Table(("", *labels), rows),))]
    indexed = [one.errors.set_index(list(keys)) for one in compared]
    headers = (*(key.replace("_", " ") for key in keys), *labels)
    for column, words in figures.items():
        if all(column in own for own in indexed):
            found = pd.concat([own[column].map(_format_value) for own in indexed], axis=1)
            body = found.fillna("").reset_index().astype(str).itertuples(index=False, name=None)
            sections.append(Section(words[:1].upper() + words[1:], (Table(headers, tuple(body)),)))
    stamps = [CONFIDENTIAL] * any(one.settings.input.confidential for one in compared)
    stamps += [one.settings.stamp for one in compared if one.settings.stamp is not None]
    stamp = "; ".join(dict.fromkeys(stamps)) or None
    title = f"{len(compared)} runs of {compared[0].settings.PRODUCT} compared with the truth"
    meaning = "Errors of released counts, each run against its own confidential input."
    return Document(title, (meaning,), tuple(sections), stamp)


def _format_value(value: float | None) -> str:
    if value is None or pd.isna(value):
        return ""
    number = float(value)
    return f"{number:,.0f}" if number.is_integer() else f"{number:,.4g}"
