"""The released counts of every block, from the three runs that one population is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.schema import Schema
from ...runs.directory import RunDirectory

BLOCK_DIGITS = 16


@dataclass(frozen=True)
class Sources:
    """The finished runs that one population is made of."""

    redistricting: RunDirectory
    units: RunDirectory
    persons: RunDirectory


@dataclass(frozen=True, eq=False)
class Records:
    """Released records of a universe by block: the block's position in a list of codes, the cell,
    `(n,)` each, one entry for each record, in ascending order.
    """

    block: np.ndarray
    cell: np.ndarray

    def levels(self, schema: Schema) -> tuple[np.ndarray, ...]:
        """Level of each record in each attribute of its schema."""
        return np.unravel_index(self.cell, schema.shape)


def by_block(tables: Sequence[pa.Table]) -> tuple[np.ndarray, tuple[Records, ...]]:
    """Codes of the blocks with records in any of some tables of geocode, cell and count, which are
    read in this order, ascending; and the records of each.
    """
    codes = [np.array(table["geocode"].to_pylist(), dtype=str) for table in tables]
    blocks = np.unique(np.concatenate([_last(own) for own in codes]))
    found = []
    for table, own in zip(tables, codes, strict=True):
        count = table["count"].to_numpy()
        block = np.repeat(np.searchsorted(blocks, _last(own)), count)
        cell = np.repeat(table["cell"].to_numpy(), count)
        order = np.lexsort((cell, block))
        found.append(Records(block[order], cell[order]))
    return blocks, tuple(found)


def _last(codes: np.ndarray) -> np.ndarray:
    """The part of spine codes of blocks that is the block's own."""
    return np.array([code[-BLOCK_DIGITS:] for code in codes], dtype=f"<U{BLOCK_DIGITS}")


def counts_of(run: RunDirectory, universe: str, geolevel: str) -> pa.Table:
    """Code, cell and count of all entries of a universe's blocks."""
    folder = run.estimates(universe, geolevel, "any").parent
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])
