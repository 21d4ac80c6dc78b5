"""The area of each released row, by the codes that rows have of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..run_files import UnusableRunFile, numbered, positions
from .layout import Layout

BLOCK_GEOCODE = "block_geocode"


@dataclass(frozen=True, eq=False)
class AreaIndex:
    """Finds areas by their codes, column after column.

    A geounit is numbered by the pair of its number among those of the column before and its code:
    `known` has, by column, the number of each code, and `pairs` the pairs that areas have, each as
    one number, ascending. area : (n_areas,) the area of each geounit of the last column.
    """

    known: Mapping[str, Mapping[str, int]]
    pairs: tuple[np.ndarray, ...]
    area: np.ndarray

    @classmethod
    def of(cls, codes: Mapping[str, pa.Array]) -> AreaIndex:
        """The index of areas with these codes `(n_areas,)`, by column.

        Raises UnusableRunFile for areas of which two have the same codes.
        """
        known, pairs = {}, []
        n_areas = max(map(len, codes.values()), default=0)
        geounit = np.zeros(n_areas, dtype=np.int64)
        for name, texts in codes.items():
            distinct, code = numbered(texts)
            known[name] = {text: number for number, text in enumerate(distinct)}
            of_column, geounit = np.unique(geounit * len(distinct) + code, return_inverse=True)
            pairs.append(of_column)
        if not pairs or len(pairs[-1]) < n_areas:
            raise UnusableRunFile("the columns of the microdata do not tell all areas apart")
        return cls(known, tuple(pairs), np.argsort(geounit))

    def areas(self, texts: Mapping[str, tuple[Sequence[str], np.ndarray]]) -> np.ndarray:
        """Number of each row's area, `(n_rows,)`, -1 where none has its codes.

        `texts` has, by column, the distinct texts and the number of each row's. Rows of one area
        mostly stand together, and are looked up once.
        """
        columns = [texts[name] for name in self.known]
        is_first = np.arange(len(columns[0][1])) == 0
        for _, number in columns:
            is_first[1:] |= number[1:] != number[:-1]
        first = np.flatnonzero(is_first)
        geounit = np.zeros(first.size, dtype=np.int64)
        for known, pairs, (distinct, number) in zip(
            self.known.values(), self.pairs, columns, strict=True
        ):
            of_text = np.array([known.get(text, -1) for text in distinct], dtype=np.int64)
            code = of_text[number[first]]
            pair = geounit * len(known) + code
            at = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
            is_known = (geounit >= 0) & (code >= 0) & (pairs[at] == pair)
            geounit = np.where(is_known, at, -1)
        area = np.where(geounit >= 0, self.area[geounit], -1)
        return np.repeat(area, np.diff(first, append=is_first.size))


def area_codes(
    layout: Layout, geocode: pa.StringArray, areas: pa.Table | None
) -> dict[str, pa.Array]:
    """The codes that rows of a layout must have of the areas with these geocodes, by column.

    `areas` (block_geocode, and the columns of geolevels) has those that are no part of a geocode.
    Raises UnusableRunFile if there are other areas there.
    """
    codes = {}
    declared = [column for column in layout.columns if column.geolevel is not None]
    if declared:
        if areas is None or len(areas) != len(geocode):
            raise UnusableRunFile("the areas of the spine are not those of the geography")
        place = positions(geocode, areas[BLOCK_GEOCODE].combine_chunks().cast(pa.string()))
        if (place < 0).any():
            raise UnusableRunFile("the areas of the spine are not those of the geography")
        areas = areas.take(pa.array(place))
        codes = {column.name: areas[column.geolevel].combine_chunks() for column in declared}
    for column in layout.columns:
        if column.digits is not None:
            codes[column.name] = pc.utf8_slice_codeunits(geocode, *column.digits)
    return codes
