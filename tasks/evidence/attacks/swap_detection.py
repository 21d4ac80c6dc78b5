"""Swapped households found by attributes that swapping leaves as they are.

Swapping exchanges the places of whole households, and nothing else. Of a household that is alone
of its kind in a wide area, both in what an attacker knows and in the release, the released place
can be compared with the known one: where they differ, it was swapped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .membership import Rate, clopper_pearson


@dataclass(frozen=True)
class Linked:
    """Households known to the attacker: `record` of the release that is theirs, -1 if none is sure.

    `is_moved` marks those that are released in another place than they are known to live.
    """

    record: np.ndarray
    is_moved: np.ndarray

    @property
    def is_linked(self) -> np.ndarray:
        return self.record >= 0


def linked(
    known_key: np.ndarray,
    known_place: np.ndarray,
    released_key: np.ndarray,
    released_place: np.ndarray,
) -> Linked:
    """Links households that are alone with their key among the known and among the released.

    Keys are of what swapping does not change: the composition of the household, and the wide area
    (state) within which it swaps. An attacker who knows a part of the households alone links some
    wrongly, which `graded` shows.
    """
    if not len(released_key):
        return Linked(np.full(len(known_key), -1), np.zeros(len(known_key), dtype=bool))
    keys, first, counts = np.unique(released_key, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(keys, known_key), len(keys) - 1)
    among_known = np.unique(known_key, return_inverse=True, return_counts=True)
    is_single = among_known[2][among_known[1]] == 1
    is_sure = is_single & (keys[place] == known_key) & (counts[place] == 1)
    record = np.where(is_sure, first[place], -1)
    return Linked(record, is_sure & (released_place[record] != known_place))


@dataclass(frozen=True)
class Detection:
    """Shares of known households: linked; truly swapped among those said to be moved (precision);
    said to be moved among the swapped (recall).
    """

    linked: Rate
    precision: Rate
    recall: Rate


def graded(found: Linked, truth: np.ndarray, *, alpha: float = 0.05) -> Detection:
    """Grades links by which known households were swapped, with Clopper-Pearson intervals."""
    right = int((found.is_moved & truth).sum())
    return Detection(
        clopper_pearson(int(found.is_linked.sum()), len(truth), alpha),
        clopper_pearson(right, int(found.is_moved.sum()), alpha),
        clopper_pearson(right, int(truth.sum()), alpha),
    )
