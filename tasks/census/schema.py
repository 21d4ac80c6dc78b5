"""Schemas: the attributes whose cross product is a histogram.

A schema of attributes with sizes (d_1, ..., d_k) has d_1 * ... * d_k cells, numbered row-major:
the last attribute runs fastest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ATTRIBUTE_SIZES: Mapping[str, int] = {
    "hhgq": 8,
    "votingage": 2,
    "hispanic": 2,
    "cenrace": 63,
    "sex": 2,
    "age": 116,
    "occupancy": 2,
}
"""Number of levels of every attribute that the ingest knows how to recode."""

UNIVERSE_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "persons": ("hhgq", "votingage", "hispanic", "cenrace", "sex", "age"),
    "units": ("occupancy",),
}
"""Attributes that a schema of each universe can have."""

COARSENINGS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "hhinstlevels": ("hhgq", (0, 1, 1, 1, 1, 2, 2, 2)),
}
"""Named coarsenings: the attribute, and the coarse level of each of its levels.

`hhinstlevels` is household, institutional (types 1 to 4), noninstitutional (types 5 to 7).
"""


@dataclass(frozen=True)
class Schema:
    """The attributes of a universe, in the order in which cells are numbered.

    >>> Schema("units", ("occupancy",)).n_cells
    2
    """

    universe: str
    attributes: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = [name for name in self.attributes if name not in ATTRIBUTE_SIZES]
        if unknown:
            raise ValueError(
                f"unknown attribute {unknown[0]!r} in the schema of {self.universe}; "
                f"known: {', '.join(ATTRIBUTE_SIZES)}"
            )
        if not self.attributes or len(set(self.attributes)) != len(self.attributes):
            raise ValueError(f"the schema of {self.universe} needs distinct attributes")

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each attribute."""
        return tuple(ATTRIBUTE_SIZES[name] for name in self.attributes)

    @property
    def n_cells(self) -> int:
        """Number of cells of the histogram."""
        return math.prod(self.shape)

    def levels(self, attribute: str) -> np.ndarray:
        """Level of `attribute` in every cell, shape `(n_cells,)`."""
        axis = self.attributes.index(attribute)
        return np.unravel_index(np.arange(self.n_cells), self.shape)[axis].astype(np.int64)

    def cells(self, levels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Cell number of records given the level of each attribute, shape `(n_records,)`."""
        return np.ravel_multi_index(
            tuple(np.asarray(levels[name]) for name in self.attributes), self.shape
        )

    def cells_where(self, conditions: Mapping[str, Sequence[int]]) -> np.ndarray:
        """Mask `(n_cells,)` of the cells whose attributes take one of the given levels each."""
        mask = np.ones(self.n_cells, dtype=bool)
        for attribute, allowed in conditions.items():
            if attribute not in self.attributes:
                raise ValueError(f"{attribute!r} is not in the schema of {self.universe}")
            mask &= np.isin(self.levels(attribute), list(allowed))
        return mask


PERSONS = Schema("persons", ("hhgq", "votingage", "hispanic", "cenrace"))
"""Persons of the redistricting product: 2,016 cells."""

UNITS = Schema("units", ("occupancy",))
"""Housing units of the redistricting product: vacant, occupied."""
