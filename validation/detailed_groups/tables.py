"""The tables of sex by age that a group can receive, as the technical documents list them.

Table 0 is the total alone; 1, 2 and 3 are T02001, T02002 and T02003, with 4, 9 and 23 age bins for
each sex. The bins of each table are unions of those of the next.
"""

from __future__ import annotations

import numpy as np

OLDEST_AGE = 115

AGE_BINS: dict[int, tuple[int, ...]] = {
    1: (0, 18, 45, 65),
    2: (0, 5, 18, 25, 35, 45, 55, 65, 75),
    3: (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""First age of each bin, by the number of the table; the last bin ends with `OLDEST_AGE`."""

N_CELLS = np.array([1, *(2 * len(bins) for bins in AGE_BINS.values())])
"""Counts of a group that received each table."""
