"""The steps that compare a release with the truth, whole or in pieces.

A step that fails does not block others: the last one completes the missing parts, and reports its
failure.
"""

from __future__ import annotations

from ....products.acceptance import compare_release
from ....runs.directory import RunDirectory
from ....runs.handles import Made, created, reused
from ....runs.steps import step
from ...settings import TopdownSettings
from .compared import Piece, has_totals, has_truth, totals_file, write_totals
from .report import write_run_accuracy


@step("predict errors", TopdownSettings, run_name="predict errors of {universe}")
def predict_errors(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Compute the totals that the predicted errors of a piece need of the others."""
    if has_totals(run, universe):
        return reused(totals_file(run, universe))
    compare_release(run, settings, lambda: write_totals(run, settings, universe))
    return created(totals_file(run, universe))


@step("compare piece", TopdownSettings, run_name="compare {universe} {number}")
def compare_piece(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int, of: int
) -> Made:
    """Compare a piece of a large run with the truth, for `compare_with_truth`."""
    if not has_truth(run, settings):
        return reused(run.confidential)
    piece = Piece(run, settings, universe, number, of)
    if piece.cached is not None:
        return reused(piece.file)
    compare_release(run, settings, piece.write)
    return created(piece.file)


@step("accuracy", TopdownSettings, run_name="accuracy")
def compare_with_truth(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compare the release with the truth, in confidence, if the truth is still there."""
    compare_release(run, settings, lambda: write_run_accuracy(run, settings))
    return created(run.confidential)
