"""Cells of a square grid that points lie in, by the codes of the European grid (ETRS89-LAEA)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE_METRES = r"^\s*(?P<whole>[0-9]{1,9})(?:[.,][0-9]*)?\s*$"


@dataclass(frozen=True)
class GridCells:
    """A column of cell codes made from two columns of coordinates, in metres.

    x, y : columns of easting and northing.
    size : length of a cell's side.
    crs : number of the coordinate system, which is part of a code.
    """

    x: str
    y: str
    size: int
    crs: int = 3035

    def codes(self, batch: Mapping[str, pa.Array]) -> pa.Array:
        """The cell of every row; null where a coordinate is blank, negative or no number.

        A cell has the code of its south-west corner; its west and south sides belong to it.

        >>> point = {"E": pa.array(["4337999.9"]), "N": pa.array([2689000])}
        >>> GridCells("E", "N", 1000).codes(point).to_pylist()
        ['CRS3035RES1000mN2689000E4337000']
        """
        north, east = (self._corners(batch[name]) for name in (self.y, self.x))
        start = pa.scalar(f"CRS{self.crs}RES{self.size}mN")
        return pc.binary_join_element_wise(start, north, "E", east, "")

    def _corners(self, coordinates: pa.Array) -> pa.Array:
        """The smaller coordinate of each row's cell, as text."""
        if pa.types.is_dictionary(coordinates.type):
            coordinates = coordinates.dictionary_decode()
        if pa.types.is_floating(coordinates.type):
            is_whole = pc.and_(pc.greater_equal(coordinates, 0.0), pc.less(coordinates, 1e9))
            floor = pc.floor(pc.if_else(is_whole, coordinates, None))
            coordinates = floor.cast(pa.int64())
        found = pc.extract_regex(coordinates.cast(pa.string()), _WHOLE_METRES)
        whole = pc.struct_field(found, "whole").cast(pa.int64())
        corner = pc.multiply(pc.divide(whole, self.size), self.size)
        return corner.cast(pa.string())
