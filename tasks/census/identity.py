"""Blocks by their geocodes, as the digests of census tables go through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ..ledger.digests import DIGITS_BELOW_COUNTY

BLOCK_DIGITS, DIGITS_OF_GEOLEVELS = 16, (0, 2, 5, 11, 12)
"""Digits of a block's geocode, and of those of the geolevels above it."""


def block_levels(geocode: np.ndarray) -> list[np.ndarray]:
    """The geounits of blocks with these geocodes, integers `(n_blocks,)`, from the nation to block
    groups: by number `(n_blocks,)`.
    """
    prefixes = (geocode // 10 ** (BLOCK_DIGITS - digits) for digits in DIGITS_OF_GEOLEVELS)
    return [np.unique(prefix, return_inverse=True)[1].reshape(-1) for prefix in prefixes]


def numbers_of(geocode: pd.Series) -> np.ndarray:
    """Geocodes of digits as integers, shape `(n_blocks,)`."""
    return np.asarray(pa.array(geocode).cast(pa.int64()))


def counties_of(
    geocode: np.ndarray, table: sparse.csr_array, shape: Sequence[int]
) -> Iterator[list[np.ndarray]]:
    """County by county the geocodes, cells and counts of the cells of blocks that are not zero.

    A cell is told by its position along the last axes `shape` of its schema and those before.
    """
    county = geocode // 10**DIGITS_BELOW_COUNTY
    starts = np.flatnonzero(np.append(True, county[1:] != county[:-1]))[: len(county)]
    for first, last in zip(starts, np.append(starts[1:], len(county)), strict=False):
        entries = slice(table.indptr[first], table.indptr[last])
        if entries.start == entries.stop:
            continue
        block = np.repeat(geocode[first:last], np.diff(table.indptr[first : last + 1]))
        cells = [table.indices[entries]]
        for size in shape:
            cells[:1] = np.divmod(cells[0], size)
        yield [block, *cells, table.data[entries]]
