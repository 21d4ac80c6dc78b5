"""Summary levels of the redistricting product, and which entity of each a block belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

OUTSIDE = {"PLACE": "99999", "AIANHH": "9999", "COUSUB": "99999"}
"""Code of the blocks that belong to no entity, by part of a geocode."""


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


SUMMARY_LEVELS: Mapping[str, SummaryLevel] = {
    level.code: level
    for level in (
        SummaryLevel("040", "state", ("STATE",)),
        SummaryLevel("050", "county", ("STATE", "COUNTY")),
        SummaryLevel("060", "county subdivision", ("STATE", "COUNTY", "COUSUB")),
        SummaryLevel("140", "tract", ("STATE", "COUNTY", "TRACT")),
        SummaryLevel("150", "block group", ("STATE", "COUNTY", "TRACT", "BLKGRP")),
        SummaryLevel("160", "place", ("STATE", "PLACE")),
        SummaryLevel("280", "AIAN area", ("STATE", "AIANHH")),
        SummaryLevel("750", "block", ("STATE", "COUNTY", "TRACT", "BLOCK")),
    )
}
"""By code, in the order in which a release numbers its records."""

_DIGITS = {
    "STATE": (0, 2),
    "COUNTY": (2, 5),
    "TRACT": (5, 11),
    "BLKGRP": (11, 12),
    "BLOCK": (12, 16),
}
"""Digits of the block geocode in each part, end exclusive."""

_COLUMNS = {"COUSUB": "COUSUBFP", "PLACE": "PLACEFP", "AIANHH": "AIANNHCE"}
"""Column of the geography frame with each of the other parts."""


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

    def __len__(self) -> int:
        return len(self.geocode)

    def sums(self, histograms: sparse.csr_array) -> sparse.csr_array:
        """Sums over each entity's blocks, from block histograms of shape `(n_blocks, n_cells)`."""
        inside = np.flatnonzero(self.block_entity >= 0)
        ones = np.ones(inside.size, dtype=np.int64)
        shape = (len(self), len(self.block_entity))
        return sparse.csr_array((ones, (self.block_entity[inside], inside)), shape) @ histograms


def entities_of(geography: pd.DataFrame, level: SummaryLevel) -> Entities:
    """The entities of a summary level over the blocks of a geography frame.

    A block's geocode is that of the state, county, tract and the four digits of the block, which
    begin with its block group; where some block's do not, the block group stands before them.
    """
    names = list(level.parts)
    parts = _parts(geography, names)
    if "BLOCK" in names:
        block_group = _parts(geography, ["BLKGRP"])["BLKGRP"]
        if not pc.all(pc.equal(pc.utf8_slice_codeunits(parts["BLOCK"], 0, 1), block_group)).as_py():
            names.insert(names.index("BLOCK"), "BLKGRP")
            parts["BLKGRP"] = block_group
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
    first = np.full(len(order), -1, dtype=np.int64)
    inside = np.flatnonzero(entity >= 0)[::-1]
    first[entity[inside]] = inside
    return Entities(
        level,
        encoded.dictionary.take(order),
        {name: parts[name].take(pa.array(first)) for name in names},
        entity,
    )


def _parts(geography: pd.DataFrame, names: list[str]) -> dict[str, pa.StringArray]:
    block_geocode = _text(geography["block_geocode"])
    return {
        name: pc.utf8_slice_codeunits(block_geocode, *_DIGITS[name])
        if name in _DIGITS
        else _text(geography[_COLUMNS[name]])
        for name in names
    }


def _text(column: pd.Series) -> pa.StringArray:
    return pa.array(column.to_numpy(dtype=object), pa.string())
