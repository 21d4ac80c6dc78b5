"""Who is who: an attacker who knows block, sex and age of people learns what else the release says.

Putative are the attacker's records that match a record of the release one to one, confirmed those
whose feature (race by ethnicity) is thereby right; precision is confirmed over putative, recall
confirmed over all [Reconstruction2025]. Every rate belongs beside two baselines: what a guess
from the block's composition gets right, with or without the person's own record in it, and beside
the same attack on unprotected data, its ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Rates:
    """People attacked, putative and confirmed among them; expected where guesses are drawn."""

    people: int
    putative: float
    confirmed: float

    @property
    def precision(self) -> float:
        """Confirmed over putative; NaN if nobody is putative."""
        return self.confirmed / self.putative if self.putative else float("nan")

    @property
    def recall(self) -> float:
        """Confirmed over people; NaN if there is nobody."""
        return self.confirmed / self.people if self.people else float("nan")


@dataclass(frozen=True)
class Guesses:
    """For every person attacked, whether there is a guess, and the chance that it is right."""

    is_putative: np.ndarray
    right: np.ndarray

    def rates(self, group: np.ndarray | None = None) -> Rates:
        """Rates among a group of people, given as a mask."""
        inside = np.ones(len(self.right), dtype=bool) if group is None else group
        putative = inside & self.is_putative
        return Rates(int(inside.sum()), float(putative.sum()), float(self.right[putative].sum()))

    def rates_by_group(self, groups: Mapping[str, np.ndarray]) -> dict[str, Rates]:
        return {name: self.rates(group) for name, group in groups.items()}


def matched(left: np.ndarray, right: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """A record on the right for every one on the left with an equal key `(records,)`, where one is
    left, none of them twice: as many as the rarer side has of each key; -1 for none.

    A key is one integer that has all that must agree, the block among it. Which of several records
    with one key are taken, and by whom, `seed` decides.
    """
    draws = np.random.default_rng(seed)
    sides = []
    for keys in (left, right):
        order = np.lexsort((draws.random(len(keys)), keys))
        own = pd.DataFrame({"key": keys[order], "record": order})
        sides.append(own.assign(rank=own.groupby("key").cumcount()))
    pairs = sides[0].merge(sides[1], on=["key", "rank"])
    partner = np.full(len(left), -1)
    partner[pairs["record_x"]] = pairs["record_y"]
    return partner


def agreement(truth: np.ndarray, found: np.ndarray, *, seed: int = 0) -> float:
    """Share of the true records that agree with a rebuilt one by their keys; 0 if there are none.

    With keys of block, sex, age, race and ethnicity, this is the agreement of [Reconstruction2025].
    """
    return int((matched(truth, found, seed=seed) >= 0).sum()) / max(len(truth), 1)


def reidentify(
    known: np.ndarray,
    released: np.ndarray,
    released_feature: np.ndarray,
    truth: np.ndarray,
    *,
    seed: int = 0,
) -> Guesses:
    """What an attacker who knows the keys of some people learns from the records of a release.

    `known` and `released` are the keys (block, sex and age) of people and of records, `truth` the
    feature of the people attacked.
    """
    partner = matched(known, released, seed=seed)
    has_partner, right = partner >= 0, np.zeros(len(truth))
    right[has_partner] = released_feature[partner[has_partner]] == truth[has_partner]
    return Guesses(has_partner, right)


def composition(area: np.ndarray, feature: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """People by area and feature, shape `(areas, features)`."""
    place = np.ravel_multi_index((area, feature), shape)
    return np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)


def _weights_of_mode(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Weights of features as the mode of the first counts, ties by the next, else shared."""
    best = np.ones(counts[0].shape, dtype=bool)
    for level in counts:
        among = np.where(best, level, -1)
        best &= among == among.max(axis=1, keepdims=True)
    return best / best.sum(axis=1, keepdims=True)


def guessed(
    block: np.ndarray,
    truth: np.ndarray,
    counts: Sequence[np.ndarray],
    areas: Sequence[np.ndarray],
    *,
    leave_one_out: bool,
) -> tuple[Guesses, Guesses]:
    """Guesses by the block's mode, and in proportion to its composition.

    `counts` are people by area and feature, of the blocks first, then of coarser areas (block
    groups, the nation), which break ties of the mode; `areas[k]` is the area of every block at
    level k, and so `areas[0]` counts through the blocks. With `leave_one_out` the person's own
    record is taken from all of them (from none below 0). Where the block is then empty, the next
    level stands for it; where all are, there is no guess.
    """
    n_features = counts[0].shape[1]
    pairs, of_pair = np.unique(block * n_features + truth, return_inverse=True)
    pair_block, pair_feature = pairs // n_features, pairs % n_features
    own = np.zeros((len(pairs), n_features), dtype=np.int64)
    if leave_one_out:
        own[np.arange(len(pairs)), pair_feature] = 1
    levels = [
        np.maximum(np.asarray(level)[of_block[pair_block]] - own, 0)
        for level, of_block in zip(counts, areas, strict=True)
    ]
    nearest = levels[0].copy()
    for level in levels[1:]:
        empty = nearest.sum(axis=1) == 0
        nearest[empty] = level[empty]
    place = np.arange(len(pairs)), pair_feature
    totals = nearest.sum(axis=1)
    mode = _weights_of_mode([nearest, *levels[1:]])[place]
    share = nearest[place] / np.maximum(totals, 1)
    putative = (totals > 0)[of_pair]
    return (
        Guesses(putative, np.where(totals > 0, mode, 0.0)[of_pair]),
        Guesses(putative, share[of_pair]),
    )


def is_modal(
    block: np.ndarray,
    feature: np.ndarray,
    counts: Sequence[np.ndarray],
    areas: Sequence[np.ndarray],
) -> np.ndarray:
    """Whether people have the most common feature of their block, ties broken by coarser areas.

    Of features that are tied at every level, the first is the mode.
    """
    levels = [level[of_block] for level, of_block in zip(counts, areas, strict=True)]
    mode = _weights_of_mode(levels).argmax(axis=1)
    return mode[block] == feature


def is_unique(key: np.ndarray) -> np.ndarray:
    """Whether nobody else has a person's key (block, sex and binned age)."""
    _, place, counts = np.unique(key, return_inverse=True, return_counts=True)
    return counts[place] == 1
