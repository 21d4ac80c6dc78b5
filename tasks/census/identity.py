"""The people and housing units of census tables, as the ledger recognises them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ..ledger.digests import DIGITS_BELOW_COUNTY
from ..ledger.recognition import MOST_VALUES, RecordColumn
from .cef_2020 import recode_of
from .histograms import HistogramSum
from .recodes import UNKNOWN
from .tables import IDENTITY

BLOCK_DIGITS, DIGITS_OF_GEOLEVELS = 16, (0, 2, 5, 11, 12)
"""Digits of a block's geocode, and of those of the geolevels above it."""

MOST_CODES = 128
"""More than any code of an attribute that tells persons apart, or of a vacancy."""

_UNITS_AT_ONCE = 1 << 20


def block_levels(geocode: np.ndarray) -> list[np.ndarray]:
    """The geounits of blocks with these geocodes, integers `(n_blocks,)`, from the nation to block
    groups: by number `(n_blocks,)`.
    """
    prefixes = (geocode // 10 ** (BLOCK_DIGITS - digits) for digits in DIGITS_OF_GEOLEVELS)
    return [np.unique(prefix, return_inverse=True)[1].reshape(-1) for prefix in prefixes]


def person_columns_of(counts: sparse.csr_array) -> list[RecordColumn]:
    """The raw columns of persons by block and cell of `tasks.census.tables.IDENTITY`."""
    positions = np.unravel_index(np.arange(counts.shape[1]), IDENTITY.shape)
    return [
        RecordColumn(counts, _raw_values(attribute), position)
        for attribute, position in zip(IDENTITY.attributes, positions, strict=True)
    ]


@cache
def _raw_values(attribute: str) -> tuple[str, ...]:
    """The raw value of every level of an attribute of persons whose levels are single values."""
    recode = recode_of("persons", attribute)
    found: dict[int, str] = {}
    for number in range(MOST_CODES):
        level = recode.level_of(str(number))
        if level != UNKNOWN and found.setdefault(level, str(number)) != str(number):
            raise ValueError(f"{attribute} cannot be told from its levels")
    return tuple(found[level] for level in range(len(recode.levels)))


def unit_columns_of(
    unit_block: np.ndarray, unit_vacancy: np.ndarray, unit_population: np.ndarray, n_blocks: int
) -> list[RecordColumn]:
    """Of units by block: the raw vacancy of the housing units, and how many persons all have."""
    vacancy, sizes = HistogramSum(n_blocks, MOST_CODES), HistogramSum(n_blocks, MOST_VALUES)
    for start in range(0, len(unit_block), _UNITS_AT_ONCE):
        rows = slice(start, start + _UNITS_AT_ONCE)
        block, code = unit_block[rows], unit_vacancy[rows]
        size = np.minimum(unit_population[rows], MOST_VALUES - 1)
        vacancy.add(block[code >= 0], code[code >= 0], np.ones((code >= 0).sum(), np.int8))
        sizes.add(block, size, np.ones(len(block), np.int8))
    columns = []
    for counts in (vacancy.total(), sizes.total()):
        n_values = int(counts.indices.max(initial=0)) + 1
        columns.append(RecordColumn(counts[:, :n_values], [str(n) for n in range(n_values)]))
    return columns


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
