"""The figures of the accuracy report, computed from the confidential truth and the release.

Everything written here is confidential: the errors follow from the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from ....runs.directory import RunDirectory
from ....runs.stamps import has_frames, read_frames, write_frames
from ...settings import TopdownSettings
from ...spine.files import spine_of
from .compared import quantities_asked
from .levels import own_geolevels
from .pieces import FOLDER, tallies_of_pieces
from .tallies import criterion_rows, error_rows


@dataclass(frozen=True, eq=False)
class AccuracyFigures:
    """The figures of one run."""

    errors: pd.DataFrame
    """universe, quantity, answer, level, on_spine, size_class, entities, then `figures_of`. The
    answer is one of the quantity's, or "all" of them together, and only these have rows for each
    size class beside "all"."""
    criterion: pd.DataFrame
    """population, level, on_spine, then `criterion_of`."""


def compute_figures(run: RunDirectory, settings: TopdownSettings) -> AccuracyFigures:
    """Compare the estimates of every universe with the truth, but for what pieces have found."""
    errors: list[dict[str, Any]] = []
    criterion: list[dict[str, Any]] = []
    for universe in settings.run.universes:
        parts = tallies_of_pieces(run, settings, universe)
        own = own_geolevels(spine_of(run, universe))
        errors += error_rows(parts, universe, quantities_asked(settings, universe), own)
        criterion += criterion_rows(parts, own)
    return AccuracyFigures(pd.DataFrame(errors), pd.DataFrame(criterion))


def write_figures(run: RunDirectory, figures: AccuracyFigures) -> None:
    """Store the figures in the confidential folder."""
    write_frames(run.confidential / FOLDER, figures)


def read_figures(run: RunDirectory) -> AccuracyFigures | None:
    """What `write_figures` wrote, None if it is gone."""
    folder = run.confidential / FOLDER
    return read_frames(folder, AccuracyFigures) if has_frames(folder, AccuracyFigures) else None
