"""Tabulations of the states of a run, one after the other, from the estimates of their blocks.

A state is read when it is asked for, so that memory is that of the largest state and of the codes
of all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from .....geography.levels import Spine
from ....census.cef_2020 import CENSUS
from ....census.schema import Schema
from ....runs.directory import RunDirectory
from ...measurement.public_answers import released_counts
from ...paths import geography_file
from ...settings import TopdownSettings
from ...spine.files import spine_of
from ..microdata import present_attributes
from .levels import needs_block_groups, texts_of
from .tables import Tabulation
from .variables import variable_matrix, variables_of

_STATE = (0, CENSUS.code_parts["STATE"].digits[1])  # type: ignore[index]
"""Digits of a block's geocode that tell its state."""


@dataclass(frozen=True)
class States:
    """The states of a run's geography: FIPS codes ascending, and the blocks of each."""

    fips: tuple[str, ...]
    n_blocks: tuple[int, ...]
    tells_block_group: bool
    """See `needs_block_groups`."""

    @classmethod
    def read(cls, run: RunDirectory) -> States:
        """From the geography that an ingest wrote."""
        codes = pq.read_table(geography_file(run), columns=["block_geocode"])["block_geocode"]
        found = pc.value_counts(pc.utf8_slice_codeunits(codes, *_STATE)).sort(by="values")
        counts = zip(
            found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True
        )
        fips, n_blocks = zip(*counts, strict=True)
        return cls(fips, n_blocks, needs_block_groups(codes))

    def group(self, number: int, n: int) -> tuple[str, ...]:
        """Group `number` (from 0) of `n` groups of successive states with about as many blocks
        each; it can be empty."""
        before = np.cumsum((0, *self.n_blocks))
        group = (before[:-1] + before[1:]) * n // (2 * before[-1])
        return tuple(fips for fips, own in zip(self.fips, group, strict=True) if own == number)


def state_tabulations(
    run: RunDirectory, settings: TopdownSettings, universes: Sequence[str], states: Sequence[str]
) -> Iterator[Tabulation]:
    """The tabulation of each of some states, in turn; every block of the geography is tabulated."""
    tells_block_group = States.read(run).tells_block_group
    read = [_Estimates.of(run, settings, universe) for universe in universes]
    variables = tuple(name for own in read for name in variables_of(own.schema))
    matrices = tuple(variable_matrix(own.schema) for own in read)
    for fips in states:
        geography = _geography(run, fips)
        codes = _numbers(texts_of(geography["block_geocode"]))
        histograms = tuple(own.histogram(fips, codes) for own in read)
        yield Tabulation(geography, variables, histograms, matrices, tells_block_group)


def _geography(run: RunDirectory, fips: str) -> pd.DataFrame:
    """The rows of the geography that are a state's."""
    after = f"{fips}:"  # A colon follows the digits.
    chosen = [("block_geocode", ">=", fips), ("block_geocode", "<", after)]
    return pq.read_table(geography_file(run), filters=chosen).to_pandas()


def _numbers(codes: pa.ChunkedArray | pa.StringArray) -> np.ndarray:
    return codes.cast(pa.int64()).to_numpy()


@dataclass(frozen=True, eq=False)
class _Estimates:
    """The block estimates of a universe, by cells of its own attributes that microdata tell."""

    run: RunDirectory
    universe: str
    schema: Schema
    own_cell: np.ndarray
    """(n_cells,) the cell of `schema` of each cell of the estimates."""
    spine: Spine
    state: pa.Array
    """(n_blocks,) FIPS code of the state of each block of the spine."""

    @classmethod
    def of(cls, run: RunDirectory, settings: TopdownSettings, universe: str) -> _Estimates:
        """Of one universe of a run."""
        full, spine = settings.schema_of(universe), spine_of(run, universe)
        schema = CENSUS.schema(universe, present_attributes(full))
        own_cell = schema.cells({name: full.levels(name) for name in schema.attributes})
        state = pc.utf8_slice_codeunits(pa.array(spine.block_geocode, pa.string()), *_STATE)
        return cls(run, universe, schema, own_cell, spine, state)

    def histogram(self, fips: str, codes: np.ndarray) -> sparse.csr_array:
        """Histograms `(n_blocks, n_cells)` of a state's blocks, whose geocodes are `codes` (n,),
        ascending."""
        shape = (len(codes), self.schema.n_cells)
        blocks = np.flatnonzero(pc.equal(self.state, fips))
        last, n_cells = self.spine.geolevels[-1], len(self.own_cell)
        found = sparse.coo_array(released_counts(self.run, self.universe, last, n_cells, blocks))
        geocode = _numbers(pa.array(self.spine.block_geocode[blocks], pa.string()))
        block = np.searchsorted(codes, geocode)
        if (codes[np.minimum(block, len(codes) - 1)] != geocode).any():
            raise ValueError(f"estimates of {self.universe} have a block outside the geography")
        where = (block[found.row], self.own_cell[found.col])
        return sparse.csr_array(sparse.coo_array((found.data, where), shape))
