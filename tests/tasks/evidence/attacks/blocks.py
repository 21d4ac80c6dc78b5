"""Histograms of blocks, and what tables say of them."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from spineflow.tasks.evidence.attacks.reconstruction import Reconstruction, TableSystem


def totals_of(system: TableSystem, histograms: np.ndarray) -> np.ndarray:
    """Table cells of histograms `(blocks, cells)`, shape `(blocks, rows)`."""
    return np.asarray(histograms) @ system.matrix.T


def histograms(found: Reconstruction, n_cells: int) -> np.ndarray:
    """The solutions, shape `(blocks, cells)`."""
    where = (found.block, found.cell)
    return sparse.csr_array((found.count, where), shape=(found.n_blocks, n_cells)).toarray()
