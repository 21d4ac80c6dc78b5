"""The cells of a universe that settings leave, and those that are zero by definition."""

from __future__ import annotations

import numpy as np

from ..settings import TopdownSettings


def structural_zeros(settings: TopdownSettings, universe: str) -> np.ndarray:
    """Mask `(n_cells,)` of the cells that are zero by definition."""
    schema = settings.schema_of(universe)
    forbidden = np.zeros(schema.n_cells, dtype=bool)
    for zero in settings.zeros_of(universe):
        forbidden |= schema.cells_where(zero.where)
    return forbidden


def possible_cells(settings: TopdownSettings, universe: str) -> np.ndarray:
    """Numbers of the cells that are no structural zeros."""
    return np.flatnonzero(~structural_zeros(settings, universe))
