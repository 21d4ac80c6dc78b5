"""Shares of the privacy-loss budget along the paths of a spine, recomputed independently.

Nothing here knows how a spine or its shares came about: parents, shares and codes per level are
all it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np


def path_shares(
    parents: Sequence[np.ndarray],
    shares: Sequence[Sequence[Fraction]],
    share_codes: Sequence[np.ndarray],
) -> tuple[np.ndarray, int]:
    """Sum of the shares on the path from the root to each geounit of the last level.

    `parents[l]` (n_l,) holds positions in level l - 1 (the root level's are not read), and geounit
    i of level l has the share `shares[l][share_codes[l][i]]`. Returns integer numerators (n,) and
    their common denominator; the arithmetic is exact.
    """
    denominator = math.lcm(*(share.denominator for level in shares for share in level))
    largest = sum(max((abs(share) for share in level), default=0) for level in shares)
    dtype = np.int64 if largest * denominator < 2**63 else object
    total = np.zeros(0, dtype=dtype)
    for level, (parent, level_shares, code) in enumerate(
        zip(parents, shares, share_codes, strict=True)
    ):
        numerators = np.array([int(share * denominator) for share in level_shares], dtype=dtype)
        own = numerators[code]
        total = own if level == 0 else own + total[parent]
    return total, denominator


def unbalanced_paths(
    parents: Sequence[np.ndarray],
    shares: Sequence[Sequence[Fraction]],
    share_codes: Sequence[np.ndarray],
) -> np.ndarray:
    """Positions in the last level whose path's shares do not add to exactly 1; empty if sound.

    A geounit whose own share is negative makes every path through it unbalanced.

    >>> half = [[Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 3)]]
    >>> root, children = np.array([-1]), np.array([0, 0, 0])
    >>> unbalanced_paths([root, children], half, [np.array([0]), np.array([0, 1, 0])])
    array([1])
    """
    total, denominator = path_shares(parents, shares, share_codes)
    is_negative = [[Fraction(int(share < 0)) for share in level_shares] for level_shares in shares]
    n_negative, _ = path_shares(parents, is_negative, share_codes)
    return np.flatnonzero((total != denominator) | (n_negative != 0))
