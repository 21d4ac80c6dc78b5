"""The steps that compare a release with the truth, whole or in pieces."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.checks.accuracy.pieces import (
    has_piece,
    has_totals,
    piece_file,
    totals_file,
    write_piece,
    write_totals,
)
from spineflow.tasks.topdown.checks.accuracy.queries import has_truth
from spineflow.tasks.topdown.checks.accuracy.run import write_run_accuracy
from spineflow.tasks.topdown.settings import TopdownSettings


@step("predict errors", TopdownSettings, run_name="predict errors of {universe}")
def predict_errors(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Work out what the errors that the budget implies for a piece need of the others."""
    if has_totals(run, universe):
        return found(totals_file(run, universe))
    return made(write_totals(run, settings, universe))


@step("compare piece", TopdownSettings, run_name="compare {universe} {number}")
def compare_piece(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int, of: int
) -> Made:
    """Compare a piece of a large run with the truth, for `compare_with_truth`."""
    if not has_truth(run, settings):
        return found(run.confidential)
    if has_piece(run, universe, number, of):
        return found(piece_file(run, universe, number, of))
    return made(write_piece(run, settings, universe, number, of))


@step("accuracy", TopdownSettings, run_name="accuracy")
def compare_with_truth(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compare the release with the truth, in confidence, if the truth is still there."""
    write_run_accuracy(run, settings)
    return made(run.confidential)
