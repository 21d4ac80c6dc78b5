"""Geocodes of one geolevel, found again fast: sorted bytes, searched row by row.

A hash table of a nation's blocks would take more memory than the codes themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class CodeIndex:
    """Where each geocode stands.

    ascending : (n,) the geocodes as bytes, sorted. position : (n,) where each stands.
    """

    ascending: np.ndarray
    position: np.ndarray

    @classmethod
    def of(cls, geocode: np.ndarray) -> CodeIndex:
        """Of geocodes in any order, texts or bytes; the positions are those in `geocode`."""
        codes = as_bytes(geocode)
        position = np.argsort(codes, kind="stable")
        return cls(codes[position], position)

    def find(self, geocode: np.ndarray) -> np.ndarray:
        """(m,) position of each geocode, -1 where it is unknown."""
        codes = as_bytes(geocode)
        if not len(self.ascending):
            return np.full(len(codes), -1)
        place = np.minimum(np.searchsorted(self.ascending, codes), len(self.ascending) - 1)
        return np.where(self.ascending[place] == codes, self.position[place], -1)


def as_bytes(geocode: np.ndarray) -> np.ndarray:
    """Geocodes as bytes of one width."""
    codes = np.asarray(geocode)
    return codes if codes.dtype.kind == "S" else codes.astype("S")
