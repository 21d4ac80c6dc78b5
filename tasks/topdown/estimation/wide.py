"""Which passes have too many cells for matrices of cells by cells, and how large others get."""

from __future__ import annotations

BLOCK_ENTRIES = 5 * 10**7
"""Most entries of the children's blocks (0.4 GB); with more the diagonal has to do."""

MANY, MANY_UNTOLD = 2500, 300
"""Cells above which a pass is wide: in any case, and where no query tells all of them apart."""


def is_wide(cells: int, n_rows: int) -> bool:
    """Whether a pass has too many cells for matrices of cells by cells, or so many, of which a
    query has `n_rows` rows at most, that these would be singular.

    >>> is_wide(2016, n_rows=2016), is_wide(2016, n_rows=252)
    (False, True)
    """
    return cells > MANY or (cells > MANY_UNTOLD and n_rows < cells)
