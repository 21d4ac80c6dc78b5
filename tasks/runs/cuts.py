"""Items cut into runs that are worked on together."""

from __future__ import annotations

import numpy as np


def cut_at(sizes: np.ndarray, limit: int) -> list[tuple[int, int]]:
    """Consecutive runs of items whose sizes add to at most `limit`, or of one larger item.

    >>> cut_at(np.array([2, 3, 9, 1]), 5)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    cuts = []
    start = 0
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        cuts.append((start, stop))
        start = stop
    return cuts
