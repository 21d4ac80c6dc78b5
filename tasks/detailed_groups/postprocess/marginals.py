"""Totals and sex marginals that agree with the cells of each group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .groups import counts_of, mask_of, with_counts


def add_marginals(screened: pa.Table, *, allow_negative_counts: bool) -> pa.Table:
    """The groups with `male`, `female` and `total`, sums of their counts.

    Negative counts become 0 before they are summed, unless they are allowed, so that the
    marginals are those of the counts that are shown. `male` and `female` are null where only a
    total was measured, and all three where the group is suppressed.

    `screened` has the columns `SCREENED`; the result has `COUNTED`, in the same order.
    """
    counts, offsets = counts_of(screened)
    if not allow_negative_counts:
        counts = np.maximum(counts, 0)
        screened = with_counts(screened, counts)
    sums = np.concatenate([[0], np.cumsum(counts)])
    start, end = offsets[:-1], offsets[1:]
    middle = (start + end) // 2
    hidden = mask_of(screened, "is_suppressed")
    no_cells = hidden | (screened["table"].to_numpy() == 0)
    columns = {
        "total": (sums[end] - sums[start], hidden),
        "male": (sums[middle] - sums[start], no_cells),
        "female": (sums[end] - sums[middle], no_cells),
    }
    for name, (values, is_null) in columns.items():
        screened = screened.append_column(name, pa.array(values, pa.int64(), mask=is_null))
    return screened
