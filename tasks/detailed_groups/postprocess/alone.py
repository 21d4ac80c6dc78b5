"""Suppression of 'alone' counts that exceed those of 'alone or in any combination'.

Whoever is in a race group alone is also in it alone or in any combination, but the two counts get
independent noise. Where the released total of the first exceeds that of the second in one
region, the first is suppressed, its sex by age table included. A group whose counterpart is
itself suppressed stays: nothing that is shown contradicts it.

Where both show a table of sex by age, cells can contradict each other although totals do not. Cell
by cell, they are compared in the coarser of the two tables, whose ages are unions of the other's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ..workload.iterations import (
    AGE_BINS,
    N_CELLS,
    cells_of_table,
)
from .groups import (
    codes_of,
    counts_of,
    mask_of,
    with_mask,
)


def suppress_alone(
    groups: pa.Table, counterparts: Mapping[str, str], *, by_cell: bool = False
) -> pa.Table:
    """Mark as suppressed every 'alone' group with a larger total than its counterpart.

    With `by_cell` also those with a larger count in a cell that both groups show.

    Args:
        groups: columns `COUNTED`; a region's groups of one iteration level all among them.
        counterparts: 'alone' iteration code to the 'alone or in any combination' code of the
            same race group.
    """
    iteration, iteration_names = codes_of(groups, "iteration_code")
    place = {name: code for code, name in enumerate(iteration_names)}
    counterpart = np.array(
        [place.get(counterparts.get(name, ""), -1) for name in iteration_names], dtype=np.int64
    )
    hidden = mask_of(groups, "is_suppressed").copy()
    rows = np.flatnonzero(~hidden)
    if not rows.size:
        return groups
    region = codes_of(groups, "region_type")[0].astype(np.int64)
    region_id, region_names = codes_of(groups, "region_id")
    region = (region * len(region_names) + region_id)[rows]
    total = groups["total"].to_numpy(zero_copy_only=False)[rows].astype(np.int64)
    iteration = iteration[rows].astype(np.int64)
    key = region * len(iteration_names) + iteration
    by_key = np.argsort(key)
    partner = np.where(counterpart[iteration] >= 0, key - iteration + counterpart[iteration], -1)
    where = np.minimum(np.searchsorted(key, partner, sorter=by_key), rows.size - 1)
    match = by_key[where]
    is_pair = (partner >= 0) & (key[match] == partner)
    exceeds = is_pair & (total > total[match])
    if by_cell:
        alone = np.flatnonzero(is_pair & ~exceeds)
        exceeds[alone] = _exceeds_in_a_cell(groups, rows[alone], rows[match[alone]])
    hidden[rows[exceeds]] = True
    return with_mask(groups, "is_suppressed", hidden)


def _exceeds_in_a_cell(groups: pa.Table, alone: np.ndarray, combined: np.ndarray) -> np.ndarray:
    """Mask of the pairs of groups, by their rows, of which the first has more in a shown cell."""
    counts, offsets = counts_of(groups)
    table = groups["table"].to_numpy().astype(np.int64)
    found = np.zeros(alone.size, dtype=bool)
    for first in AGE_BINS:
        for second in AGE_BINS:
            here = (table[alone] == first) & (table[combined] == second)
            if not here.any():
                continue
            coarser = min(first, second)
            sides = (
                counts[offsets[rows[here]][:, None] + np.arange(N_CELLS[own])]
                @ _folded(own, coarser)
                for rows, own in ((alone, first), (combined, second))
            )
            found[here] = np.greater(*sides).any(axis=1)
    return found


def _folded(table: int, coarser: int) -> np.ndarray:
    """0/1 matrix (cells of a table, cells of a coarser one) that sums the former up."""
    matrix = np.zeros((N_CELLS[table], N_CELLS[coarser]), dtype=np.int64)
    matrix[cells_of_table(table), cells_of_table(coarser)] = 1
    return matrix
