"""Summary levels of the redistricting product, and which entity of each a block belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ....census.cef_2020 import CENSUS
from ....census.queries import incidence


@dataclass(frozen=True)
class SummaryLevel:
    """A summary level: its code, its name, and the parts of its geocodes."""

    code: str
    name: str
    parts: tuple[str, ...]

    @property
    def stem(self) -> str:
        """Name of its files, without ending.

        >>> SUMMARY_LEVELS["060"].stem
        '060_county_subdivision'
        """
        return f"{self.code}_{self.name.replace(' ', '_').lower()}"

    @property
    def is_of_blocks(self) -> bool:
        """Whether its entities are single blocks."""
        return "BLOCK" in self.parts


SUMMARY_LEVELS: Mapping[str, SummaryLevel] = {
    level.code: SummaryLevel(level.code, level.name, level.parts) for level in CENSUS.summary_levels
}
"""By code, in the order in which a release numbers its records."""

COLUMNS: Mapping[str, str] = {
    name: part.column for name, part in CENSUS.code_parts.items() if part.column is not None
}
"""Column of the geography frame with each part of a geocode that is not of the block's."""

OUTSIDE: Mapping[str, str] = {
    name: part.outside for name, part in CENSUS.code_parts.items() if part.outside is not None
}
"""Code of the blocks that belong to no entity, by part of a geocode."""

_DIGITS: Mapping[str, tuple[int, int]] = {
    name: part.digits for name, part in CENSUS.code_parts.items() if part.digits is not None
}
"""Digits of the block geocode in each part, end exclusive."""


@dataclass(frozen=True, eq=False)
class Entities:
    """The entities of one summary level, by geocode."""

    level: SummaryLevel
    geocode: pa.StringArray
    """(n,) ascending; those of one state stand together."""
    parts: Mapping[str, pa.StringArray]
    """Each part of the geocode, (n,) each."""
    block_entity: np.ndarray
    """(n_blocks,) int64: position of each block's entity; -1 if it belongs to none."""
    first_block: pa.Array
    """(n,) position of each entity's first block."""

    def __len__(self) -> int:
        return len(self.geocode)

    def sums(self, histograms: sparse.csr_array) -> sparse.csr_array:
        """Sums over each entity's blocks, from block histograms of shape `(n_blocks, n_cells)`."""
        return incidence(self.block_entity, len(self)) @ histograms


def entities_of(
    geography: pd.DataFrame, level: SummaryLevel, *, tells_block_group: bool | None = None
) -> Entities:
    """The entities of a summary level over the blocks of a geography frame.

    A block's geocode is that of the state, county, tract and the four digits of the block, which
    begin with its block group; where some block's do not, the block group stands before them.
    `tells_block_group` says which it is where the blocks are some of more; see
    `needs_block_groups`.
    """
    names = list(level.parts)
    if level.is_of_blocks:
        if tells_block_group is None:
            tells_block_group = needs_block_groups(texts_of(geography["block_geocode"]))
        if tells_block_group:
            names.insert(names.index("BLOCK"), "BLKGRP")
    parts = _parts(geography, names)
    geocode = pc.binary_join_element_wise(*(parts[name] for name in names), "")
    if names[-1] in OUTSIDE:
        is_outside = pc.equal(parts[names[-1]], OUTSIDE[names[-1]])
        geocode = pc.if_else(is_outside, pa.scalar(None, pa.string()), geocode)
    encoded = geocode.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    found = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    entity = np.where(found < 0, -1, np.append(rank, -1)[found])
    own_blocks = np.full(len(order), -1, dtype=np.int64)
    inside = np.flatnonzero(entity >= 0)[::-1]
    own_blocks[entity[inside]] = inside
    first = pa.array(own_blocks)
    of_entities = {name: parts[name].take(first) for name in names}
    return Entities(level, encoded.dictionary.take(order), of_entities, entity, first)


def needs_block_groups(block_geocode: pa.StringArray | pa.ChunkedArray) -> bool:
    """Whether the four digits of some block do not begin with its block group."""
    own, group = (
        pc.utf8_slice_codeunits(block_geocode, first, first + 1)
        for first in (_DIGITS["BLOCK"][0], _DIGITS["BLKGRP"][0])
    )
    return not pc.all(pc.equal(own, group), min_count=0).as_py()


def _parts(geography: pd.DataFrame, names: list[str]) -> dict[str, pa.StringArray]:
    block_geocode = texts_of(geography["block_geocode"])
    return {
        name: pc.utf8_slice_codeunits(block_geocode, *_DIGITS[name])
        if name in _DIGITS
        else texts_of(geography[COLUMNS[name]])
        for name in names
    }


def texts_of(column: pd.Series) -> pa.StringArray:
    """A column of texts; without objects where it is an Arrow array already."""
    held = pa.array(column)
    if isinstance(held, pa.ChunkedArray):
        held = held.combine_chunks()
    return held.cast(pa.string())
