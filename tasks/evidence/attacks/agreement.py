"""Records matched one to one on equal keys, pass by pass, none of them twice.

The matching of [Reconstruction2025]: within a block, first with exact age, then, of what is left,
with binned age. A key is one integer per record that has all that must agree, the block among it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Matching:
    """`partner` is the matched record of the other side, `step` the pass; -1 if there is none."""

    partner: np.ndarray
    step: np.ndarray

    @property
    def is_matched(self) -> np.ndarray:
        return self.partner >= 0

    def shares(self, n_steps: int) -> list[float]:
        """Share of the records matched up to each pass; 0 if there are no records."""
        counts = np.bincount(self.step[self.is_matched], minlength=n_steps)
        return (np.cumsum(counts) / max(len(self.step), 1)).tolist()


def matched(left: Sequence[np.ndarray], right: Sequence[np.ndarray], *, seed: int = 0) -> Matching:
    """A partner on the right for every record on the left, where one is left.

    `left` and `right` have the keys of every pass, strictest first, shape `(records,)`. Which of
    several records with one key are taken, and by whom, `seed` decides. Raises ValueError if the
    numbers of passes differ.
    """
    draws = np.random.default_rng(seed)
    n_left, n_right = len(left[0]), len(right[0])
    partner, step = np.full(n_left, -1), np.full(n_left, -1)
    open_right = np.arange(n_right)
    for number, (left_key, right_key) in enumerate(zip(left, right, strict=True)):
        open_left = np.flatnonzero(partner < 0)
        here, there = _pairs(left_key[open_left], right_key[open_right], draws)
        partner[open_left[here]] = open_right[there]
        step[open_left[here]] = number
        open_right = np.delete(open_right, there)
    return Matching(partner, step)


def _pairs(
    left: np.ndarray, right: np.ndarray, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of places with equal keys, as many as the rarer side has of each."""
    ranks = []
    orders = []
    for keys in (left, right):
        order = np.lexsort((draws.random(len(keys)), keys))
        of_key = keys[order]
        starts = np.flatnonzero(np.r_[True, of_key[1:] != of_key[:-1]]) if len(keys) else keys[:0]
        lengths = np.diff(np.r_[starts, len(keys)])
        ranks.append(np.arange(len(keys)) - np.repeat(starts, lengths))
        orders.append(order)
    keys = np.unique(np.concatenate([left, right]), return_inverse=True)[1]
    codes = keys[: len(left)][orders[0]], keys[len(left) :][orders[1]]
    width = max(len(left), len(right)) + 1
    first, second = (code * width + rank for code, rank in zip(codes, ranks, strict=True))
    _, here, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return orders[0][here], orders[1][there]


def agreement(
    truth: Sequence[np.ndarray], found: Sequence[np.ndarray], *, seed: int = 0
) -> list[float]:
    """Share of the true records that agree with a rebuilt one, up to each pass.

    With keys of block, sex, age, race and ethnicity, in exact and then in binned age, these are the
    two columns of the agreement table of [Reconstruction2025].
    """
    return matched(truth, found, seed=seed).shares(len(truth))
