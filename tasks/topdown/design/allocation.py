"""Allocations of a budget: the loss of each query at each geolevel, as fractions of the whole.

An allocation is p (L, Q), not negative, of sum 1: geolevel l has the share P_l, the sum of its row,
and its query q the share p_lq / P_l.

Under the discrete Gaussian mechanism a geounit is measured with the shares of one or more geolevels
and the query shares of its own, for the bypass gives a parent with one child the share of the
child. With an allocation p (L, Q), whose row l sums to P_l, a kind of geolevel l with the
shares of the geolevels T have the precision

    v_q = rho p_lq (sum of P_j over j in T) / P_l,

which is rho p_lq but for geounits that a bypass has given the shares of other geolevels. Variances
follow from the information of the kinds, which is linear in the precisions; the recursion and its
derivatives are in `geography.variance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import compress

import numpy as np

from ....geography.classes import ClassedAreas, ClassedSpine
from ....geography.levels import Spine
from ....geography.variance import Covariances

PRIOR = 1e-7
"""Information about every coordinate of a block, relative to a precision of 1.

Unmeasured coordinates would have infinite variances; this makes no variance larger."""


def to_fractions(p: np.ndarray, denominator: int) -> list[list[Fraction]]:
    """The allocation in whole parts of `denominator`, of sum exactly 1: every number rounded down
    or up, up where most was lost."""
    parts = np.asarray(p, dtype=np.float64).ravel() / np.sum(p) * denominator
    whole = np.floor(parts).astype(np.int64)
    missing = denominator - int(whole.sum())
    whole[np.argsort(-(parts - whole), kind="stable")[:missing]] += 1
    rows = whole.reshape(np.shape(p)).tolist()
    return [[Fraction(number, denominator) for number in row] for row in rows]


def shares_of(
    fractions: Sequence[Sequence[Fraction]], geolevels: Sequence[str], queries: Sequence[str]
) -> tuple[dict[str, Fraction], dict[str, dict[str, Fraction]]]:
    """Geolevel shares, and the nonzero query shares of every geolevel."""
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


@dataclass(frozen=True, eq=False)
class GeounitClasses:
    """The kinds in which geounits are measured; see the module's docstring.

    depth : (t,) geolevel of each. shares : (t, L) 0/1, the geolevels whose shares it has.
    """

    depth: np.ndarray
    shares: np.ndarray

    def precision(self, p: np.ndarray) -> np.ndarray:
        """(t, Q) of an allocation (L, Q), for rho = 1."""
        of_geolevel = p.sum(axis=1)
        return p[self.depth] * self._times(of_geolevel)[:, None]

    def by_allocation(self, p: np.ndarray, by_precision: np.ndarray) -> np.ndarray:
        """Derivatives (..., L, Q) by an allocation from those (..., t, Q) by the precisions."""
        of_geolevel = p.sum(axis=1)
        times = self._times(of_geolevel)
        found = np.zeros((*by_precision.shape[:-2], *p.shape))
        for kind, depth in enumerate(self.depth):
            slope = by_precision[..., kind, :]
            found[..., depth, :] += times[kind] * slope
            along = slope @ p[depth] / of_geolevel[depth]
            found += along[..., None, None] * self.shares[kind][:, None]
            found[..., depth, :] -= times[kind] * along[..., None]
        return found

    def _times(self, of_geolevel: np.ndarray) -> np.ndarray:
        """(t,) budget of a kind, as a multiple of its geolevel's."""
        own = of_geolevel[self.depth]
        return np.divide(self.shares @ of_geolevel, own, out=np.zeros_like(own), where=own > 0)


@dataclass(frozen=True, eq=False)
class RequestedAreas:
    """Areas, and the requested sums over core cells in each, (z, n)."""

    areas: ClassedAreas
    core: np.ndarray


@dataclass(frozen=True, eq=False)
class MeasuredSpine:
    """The classes of a spine's geounits, and the kinds in which they are measured."""

    kinds: GeounitClasses
    classed: ClassedSpine

    @classmethod
    def build(
        cls,
        spine: Spine,
        geolevel_shares: Mapping[str, Fraction],
        cells: np.ndarray,
        *,
        known: Mapping[str, np.ndarray] | None = None,
    ) -> MeasuredSpine:
        """The classes of a spine under the discrete Gaussian mechanism.

        Args:
            geolevel_shares: the shares that the spine was built with.
            cells, known: as of `ClassedSpine.build`, the cells being core cells.

        Raises ValueError if the spine's shares do not follow from the bypass.
        """
        kinds, of_level = _kinds(spine, geolevel_shares)
        return cls(kinds, ClassedSpine.build(spine, of_level, cells, known=known))

    def summed_variances(
        self, grams: np.ndarray, precision: np.ndarray, asked: Sequence[RequestedAreas]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Variances by component, summed over rows of `core` and over areas, and their derivatives.

        Args:
            grams: (Q, S, n, n) Gram matrices of the queries on all core cells.
            precision: (kinds, Q) inverse variance of every kind's answers to every query.

        Returns `(asked, S)` and `(asked, S, kinds, Q)`.

        Example: one block of one cell, measured with precision 4, has the variance 1/4, and its
        derivative is -1/16.
        """
        counted = self.classed.information
        information = np.tensordot(counted @ precision, grams, axes=1)
        covariances = Covariances.of(self.classed, information, prior=PRIOR)
        values, derivatives = [], []
        for one in asked:
            value, of_information = covariances.slopes(one.areas, one.core)
            by_kind = counted.T @ of_information.reshape(len(of_information), -1)
            by_kind = by_kind.reshape(-1, *of_information.shape[1:])
            values.append(value)
            derivatives.append(np.einsum("tsij,qsij->stq", by_kind, grams, optimize=True))
        return np.array(values), np.array(derivatives)


def _kinds(
    spine: Spine, geolevel_shares: Mapping[str, Fraction]
) -> tuple[GeounitClasses, list[np.ndarray]]:
    """The kinds, and by geolevel the kind of each geounit, -1 for none."""
    shares = [geolevel_shares[name] for name in spine.names]
    masks = [np.full(len(level), 1 << depth) for depth, level in enumerate(spine.geolevels)]
    # A geolevel without a share is not bypassed, but not measured.
    if any(
        share and level.bypassed.any() for share, level in zip(shares, spine.geolevels, strict=True)
    ):
        for depth in range(len(spine.geolevels) - 1, 0, -1):
            parent = spine.geolevels[depth].parent
            single = np.bincount(parent, minlength=len(masks[depth - 1]))[parent] == 1
            masks[depth - 1][parent[single]] |= masks[depth][single]
            masks[depth][single] = 0
    depths, rows, of_level = list[int](), list[np.ndarray](), []
    for depth, (level, mask) in enumerate(zip(spine.geolevels, masks, strict=True)):
        pairs = np.unique(np.stack([mask, level.plb_share_code]), axis=1).T.tolist()
        kind = np.full(len(level), -1)
        for bits, share in pairs:
            own = [bits >> place & 1 for place in range(len(shares))]
            if level.plb_shares[share] != sum(compress(shares, own), Fraction(0)):
                raise ValueError(f"shares of {level.name} do not follow from the bypass")
            if bits:
                kind[mask == bits] = len(rows)
                depths.append(depth)
                rows.append(np.array(own, dtype=np.float64))
        of_level.append(kind)
    return GeounitClasses(np.array(depths), np.array(rows)), of_level
