"""Writing the accuracy of a run, or of several side by side.

The figures and their report go to the confidential folder. The report is copied to where the UI and
the public look only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from ....census.census import Census
from ....products.comparison import COMPARISON, labels_of, write_compared, write_errors
from ....runs.directory import RunDirectory
from ....runs.errors import InputRefused
from ...settings import TopdownSettings
from .figures import AccuracyFigures, compute_figures, read_figures, write_figures
from .pieces import FOLDER, sums_of_pieces
from .queries import has_truth, rows_of_sums
from .report import ComparedRun, accuracy_document

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
    sums = {own: sums_of_pieces(run, settings, own) for own in settings.run.universes}
    rows = [row for own in sums for row in rows_of_sums(run, settings, own, sums[own])]
    write_errors(run, pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False))
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
    kept = read_figures(run)
    if kept is None:
        raise InputRefused(
            f"{run.root} has neither its confidential histograms nor its accuracy figures any "
            "more; leave it out of the comparison."
        )
    return kept
