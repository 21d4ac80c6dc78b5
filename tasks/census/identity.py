"""The people and housing units of census tables, as the ledger recognises them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ..ledger.digests import DIGITS_BELOW_COUNTY, InputDigest, block_counts_digest
from .cef_2020 import IDENTITY_COLUMNS
from .inputs import IngestResult
from .tables import IDENTITY


def input_digests(result: IngestResult, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises these people and housing units again."""
    geocode = _numbers(result.geography["block_geocode"])
    tables = {"persons": (IDENTITY_COLUMNS, result.identity, IDENTITY.shape[1:])}
    if "units" in result.histograms:
        names = ("block_geocode", "cell", "units")
        tables["units"] = (names, result.histograms["units"], ())
    return {
        kind: block_counts_digest(kind, names, _counties(geocode, table, shape), table.nnz, key)
        for kind, (names, table, shape) in tables.items()
    }


def _numbers(geocode: pd.Series) -> np.ndarray:
    """Geocodes of digits as integers, shape `(n_blocks,)`."""
    return np.asarray(pa.array(geocode).cast(pa.int64()))


def _counties(
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
