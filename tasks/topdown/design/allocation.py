"""Allocations of a budget: the loss of each query at each geolevel, as fractions of the whole.

An allocation is p (L, Q), not negative, of sum 1: geolevel l has the share P_l, the sum of its row,
and its query q the share p_lq / P_l.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp


class LimitsContradict(ValueError):
    """No allocation lies within the limits."""


@dataclass(frozen=True, eq=False)
class ShareLimit:
    """What some entries of an allocation, `chosen` (L, Q), have together: of the whole, from
    `at_least` to `at_most`."""

    chosen: np.ndarray
    at_least: Fraction
    at_most: Fraction


def as_fractions(
    p: np.ndarray, denominator: int, limits: Sequence[ShareLimit] = ()
) -> list[list[Fraction]]:
    """The allocation in whole parts of `denominator`, of sum exactly 1: every number rounded down
    or up, up where most was lost, or near to it where only this meets the limits.

    Raises LimitsContradict where no whole parts meet the limits.
    """
    parts = np.asarray(p, dtype=np.float64).ravel() / np.sum(p) * denominator
    whole = np.floor(parts).astype(np.int64)
    missing = denominator - int(whole.sum())
    whole[np.argsort(-(parts - whole), kind="stable")[:missing]] += 1
    ranges = [
        (
            limit.chosen.ravel(),
            math.ceil(limit.at_least * denominator),
            math.floor(limit.at_most * denominator),
        )
        for limit in limits
    ]
    if any(not low <= whole[chosen].sum() <= high for chosen, low, high in ranges):
        whole = _nearest_whole(parts, denominator, ranges)
    rows = whole.reshape(np.shape(p)).tolist()
    return [[Fraction(number, denominator) for number in row] for row in rows]


def _nearest_whole(
    parts: np.ndarray, total: int, ranges: Sequence[tuple[np.ndarray, int, int]]
) -> np.ndarray:
    """Whole numbers of a sum, within ranges of sums of some of them, whose distances to `parts` add
    up to the least; what is zero stays so, and what is not stays positive."""
    n = len(parts)
    # A number, and its distance, which is no less than the difference either way.
    sums = np.array([np.ones(n), *(chosen for chosen, _, _ in ranges)], dtype=np.float64)
    low = np.array([total, *(low for _, low, _ in ranges)])
    high = np.array([total, *(high for _, _, high in ranges)])
    eye = np.eye(n)
    found = milp(
        np.append(np.zeros(n), np.ones(n)),
        integrality=np.append(np.ones(n), np.zeros(n)),
        bounds=Bounds(
            np.append(np.minimum(np.floor(parts), 1), np.zeros(n)),
            np.append(np.where(parts > 0, total, 0), np.full(n, np.inf)),
        ),
        constraints=[
            LinearConstraint(np.hstack([sums, np.zeros_like(sums)]), low, high),
            LinearConstraint(np.hstack([eye, -eye]), -np.inf, parts),
            LinearConstraint(np.hstack([eye, eye]), parts, np.inf),
        ],
    )
    if not found.success:
        raise LimitsContradict("no whole parts are within the limits")
    return np.rint(found.x[:n]).astype(np.int64)


def shares_of(
    fractions: Sequence[Sequence[Fraction]], geolevels: Sequence[str], queries: Sequence[str]
) -> tuple[dict[str, Fraction], dict[str, dict[str, Fraction]]]:
    """Geolevel shares, and the query shares of every geolevel without those that are 0."""
    of_geolevel = {
        name: sum(row, Fraction(0)) for name, row in zip(geolevels, fractions, strict=True)
    }
    of_query = {
        name: {
            query: share / of_geolevel[name]
            for query, share in zip(queries, row, strict=True)
            if share
        }
        for name, row in zip(geolevels, fractions, strict=True)
    }
    return of_geolevel, of_query


def allocation_of(
    geolevel_shares: Mapping[str, Fraction],
    query_shares: Mapping[str, Mapping[str, Fraction]],
    queries: Sequence[str],
) -> np.ndarray:
    """(L, Q) allocation of a budget's shares."""
    return np.array(
        [
            [float(share * query_shares[name].get(query, 0)) for query in queries]
            for name, share in geolevel_shares.items()
        ]
    )
