"""Algorithm 3 of [Spines2024]: bypass geounits where that costs no query any accuracy.

Bypassing a parent moves the shares of its children one geolevel up: the parent is replaced by one
geounit for each child, whose share is the parent's plus the child's and whose only child is that
child, now with share 0. The depth of the tree and the sum of the shares on each path do not change.

The rule: a parent with one child is always bypassed. Under pure differential privacy a parent
with c >= 2 children is bypassed too if share(child) >= (c - 1) share(parent) / 2 for the child
with the smallest share (Theorem 2), from the county down, so that neither the root nor a state is
ever split, and unless the parent's own parent would get more than `bypass_cutoff` children.
Bottom-up, one pass: a second one changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from .levels import Geolevel, child_offsets

NEVER_SPLIT = ("US", "State")
"""Geolevels above the county, where the rule for two and more children does not apply."""


def bypass(
    geolevels: tuple[Geolevel, ...],
    *,
    is_pure: bool,
    bypass_cutoff: int | None = None,
    never_split: tuple[str, ...] = NEVER_SPLIT,
) -> tuple[Geolevel, ...]:
    """Geolevels after Algorithm 3, root first.

    A geounit that takes the place of a parent with one child keeps the parent's geocode; the
    geounits that take the place of a parent with several children get their child's geocode.

    Example: under zCDP the shares (1/2, 1/4, 1/4) on the path of a county, its only tract and
    the tract's blocks become (3/4, 0, 1/4).
    """
    levels = list(geolevels)
    for index in range(len(levels) - 2, -1, -1):
        parents, children = levels[index], levels[index + 1]
        offsets = child_offsets(children.parent, len(parents))
        n_children = np.diff(offsets)
        is_bypassed = n_children == 1
        if is_pure and index > 0 and parents.name not in never_split:
            n_grandchildren = np.bincount(parents.parent, minlength=len(levels[index - 1]))
            is_bypassed |= _rule_of_theorem_2(
                parents, children, offsets, n_grandchildren, bypass_cutoff
            )
        levels[index], levels[index + 1] = _bypass_parents(
            parents, children, n_children, is_bypassed
        )
    return tuple(levels)


def _rule_of_theorem_2(
    parents: Geolevel,
    children: Geolevel,
    offsets: np.ndarray,
    n_siblings: np.ndarray,
    bypass_cutoff: int | None,
) -> np.ndarray:
    """(n_parents,) bool: parents with two or more children to be bypassed.

    `n_siblings` is the number of children of each parent's own parent. A parent whose share is 0
    stays.
    """
    n_children = np.diff(offsets)
    smallest_child_code = np.minimum.reduceat(children.plb_share_code, offsets[:-1])
    cases = np.stack([parents.plb_share_code, smallest_child_code, n_children], axis=1)
    distinct, case = np.unique(cases, axis=0, return_inverse=True)
    allowed = np.array(
        [
            count >= 2
            and parents.plb_shares[parent] > 0
            and 2 * children.plb_shares[child] >= (count - 1) * parents.plb_shares[parent]
            for parent, child, count in distinct.tolist()
        ]
    )[case.reshape(-1)]
    if bypass_cutoff is not None:
        n_siblings = n_siblings.copy()
        for position in np.flatnonzero(allowed):
            above = parents.parent[position]
            n_after = n_siblings[above] - 1 + n_children[position]
            if n_after > bypass_cutoff:
                allowed[position] = False
            else:
                n_siblings[above] = n_after
    return allowed


def _bypass_parents(
    parents: Geolevel, children: Geolevel, n_children: np.ndarray, is_bypassed: np.ndarray
) -> tuple[Geolevel, Geolevel]:
    """The two geolevels after the marked parents have been bypassed."""
    is_split = is_bypassed & (n_children > 1)
    n_after = np.where(is_split, n_children, 1)
    source = np.repeat(np.arange(len(parents)), n_after)
    first_child = child_offsets(children.parent, len(parents))[:-1]
    rank = np.arange(len(source)) - np.repeat(np.cumsum(n_after) - n_after, n_after)
    child = first_child[source] + rank
    split, moved = is_split[source], is_bypassed[source]

    width = len(children.plb_shares) + 1
    pair = parents.plb_share_code[source].astype(np.int64) * width
    pair[moved] += children.plb_share_code[child[moved]] + 1
    distinct, code = np.unique(pair, return_inverse=True)
    sums = [
        parents.plb_shares[key // width]
        + (children.plb_shares[key % width - 1] if key % width else 0)
        for key in distinct.tolist()
    ]
    shares, code = encode_shares(sums, code)
    geocode = parents.geocode[source]
    geocode[split] = children.geocode[child[split]]
    n_blocks = parents.n_blocks[source]
    n_blocks[split] = children.n_blocks[child[split]]
    parents_after = Geolevel(
        name=parents.name,
        geocode=geocode,
        parent=parents.parent[source],
        plb_shares=shares,
        plb_share_code=code,
        is_aian=np.where(split, children.is_aian[child], parents.is_aian[source]),
        bypassed=np.array([share == 0 for share in shares])[code],
        n_blocks=n_blocks,
    )

    child_moved = is_bypassed[children.parent]
    code = np.where(child_moved, len(children.plb_shares), children.plb_share_code)
    shares, code = encode_shares([*children.plb_shares, Fraction(0)], code)
    parent = (np.cumsum(n_after) - n_after)[children.parent]
    parent += np.where(
        is_split[children.parent], np.arange(len(children)) - first_child[children.parent], 0
    )
    children_after = replace(
        children,
        parent=parent,
        plb_shares=shares,
        plb_share_code=code,
        bypassed=np.array([share == 0 for share in shares])[code],
    )
    return parents_after, children_after


def encode_shares(
    shares: list[Fraction], code: np.ndarray
) -> tuple[tuple[Fraction, ...], np.ndarray]:
    """Distinct used shares, ascending, and the codes into them.

    Args:
        shares: shares that `code` points into; equal ones may occur several times.
        code: (n,) integer index into `shares`.
    """
    used, place = np.unique(code, return_inverse=True)
    own = [shares[index] for index in used.tolist()]
    distinct = sorted(set(own))
    recode = np.array([distinct.index(share) for share in own], dtype=np.int32)
    return tuple(distinct), recode[place.reshape(-1)]
