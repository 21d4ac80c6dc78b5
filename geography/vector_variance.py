"""Exact variances of estimated entity totals where every geounit has several totals at once.

Each block has a vector of k counts, such as its persons by type of living quarters, and a geounit
that of the sum over its blocks. The noisy answers of geounit u have the information matrix
Lambda[u], k by k, about its vector; types that a block cannot have are known to be zero there. With
S[u] the covariance of the weighted-least-squares estimate of u's vector from the measurements in
its subtree, z = w' (vector of the entity's part of u) for given weights w, P[u] the covariance of
the vector with z, Q[u] the variance of z, and S, P, Q their sums over the children,

    K = Lambda (I + S Lambda)^-1,
    S[u] = S - S K S,    P[u] = P - S K P,    Q[u] = Q - P' K P.

The Q of an entity that lies in u alone, on the way up to the root, is less by P' M[u] P in the end,

    M[u] = K + (I - S K)' M[parent of u] (I - S K).

With k = 1 this is `geography.variance`. A geounit whose sum c' (vector) is known exactly has
K = c c' / c' S c. K and M depend on the spine and the noise alone, so they are computed once for
all entities and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np

from .levels import Spine, child_offsets

SMALLEST_PRECISION = 1e-10
"""Precision, relative to the largest, of what the measurements of a block do not determine."""
LARGEST_VARIANCE = 1e8
"""Variance, relative to the inverse of the largest precision, from which it is called infinite."""
ROUNDING = 1e-13
"""Variance, relative to the sum of the blocks' own, below which it is what rounding left of 0."""

GEOUNITS_PER_STEP = 1 << 16


@dataclass(frozen=True, eq=False)
class VectorPrecision:
    """What the noisy answers of a geolevel tell of the geounits' vectors."""

    matrices: np.ndarray
    """(n_codes, k, k) the distinct information matrices."""
    code: np.ndarray
    """(n,) which of them is each geounit's."""


@dataclass(frozen=True, eq=False)
class _Step:
    """From the geounits of one geolevel to their parents."""

    offsets: np.ndarray
    """(n_parents + 1,) into `children`."""
    children: np.ndarray
    """(n_children,) positions of the children, parent by parent."""
    gain: np.ndarray
    """(n_parents, k, k) the matrices K."""
    rest: np.ndarray
    """(n_parents, k, k) the matrices I - S K."""
    lone: np.ndarray
    """(n_parents, k, k) the matrices M."""


@dataclass(frozen=True, eq=False)
class VectorEstimate:
    """The weighted-least-squares estimate of a spine's vectors; its variances are asked for."""

    block_covariance: np.ndarray
    """(n_codes, k, k) the distinct matrices S of blocks."""
    block_code: np.ndarray
    """(n_blocks,) which of them is each block's."""
    steps: tuple[_Step, ...]
    largest: float
    """Variance from which a total is not determined."""
    below_root: np.ndarray
    """(k, k) the covariances of the root's children, added up; zeros where it has none."""

    def variances(self, entity: np.ndarray, n_entities: int, weights: np.ndarray) -> np.ndarray:
        """(n_entities,) variances of `weights` (k,) times each entity's vector.

        `entity` (n_blocks,) is each block's entity in the order of the spine's blocks, -1 for
        none. Infinite where the measurements do not determine it; 0 for an entity without blocks.
        """
        # The blocks outside all entities are one more entity.
        entity = np.where(entity < 0, n_entities, entity).astype(np.int32)
        p = self.block_covariance @ weights
        q = p @ weights
        rounding = ROUNDING * np.bincount(entity, q[self.block_code], minlength=n_entities + 1)
        # Blocks without any of what is asked for add nothing, here and above.
        has_any = ((q != 0) | p.any(axis=1))[self.block_code]
        offsets = np.append(0, np.cumsum(has_any))
        code = self.block_code[has_any]
        entity, p, q = entity[has_any], p[code], q[code]
        total = np.zeros(n_entities + 1)
        for step in self.steps:
            offsets, entity, p, q = _fold(
                step.offsets,
                step.children,
                step.gain,
                step.rest,
                step.lone,
                offsets,
                entity,
                p,
                q,
                total,
            )
        total[total < rounding] = 0.0
        return np.where(total > self.largest, np.inf, total)[:n_entities]


def vector_estimate(
    spine: Spine,
    precision: Sequence[VectorPrecision],
    possible: np.ndarray,
    *,
    known_sums: np.ndarray | None = None,
    known_at: str = "State",
    beside: np.ndarray | None = None,
) -> VectorEstimate:
    """The estimate from measurements of every geolevel.

    Args:
        precision: one for each geolevel, root first.
        possible: (n_blocks, k) bool, in the order of the spine's blocks: what a block can have;
            elsewhere its vector is known to be zero.
        known_sums: (n,) a number for each geounit of the geolevel `known_at`; the sum over all
            k and over the geounits of the same number, which have one parent, is known exactly.
            None where nothing is.
        beside: (k, k) `below_root` of the rest of a larger spine, of which this one is the part
            below some of the root's children. None for a whole spine.

    Example: two children of one parent, k = 1 and precision 1 everywhere: one child's total has
    the variance 2/3; if the parent's is known, 1/2.
    """
    precision = _handed_down(spine, precision, is_part=beside is not None)
    matrices = precision[-1].matrices
    scale = max(float(np.abs(level.matrices).max(initial=0.0)) for level in precision)
    n_types = possible.shape[1]
    has = possible @ (1 << np.arange(n_types))
    kinds, block_code = np.unique(precision[-1].code * (1 << n_types) + has, return_inverse=True)
    covariance = np.stack(
        [
            _block_covariance(
                matrices[kind >> n_types], (kind >> np.arange(n_types) & 1).astype(bool), scale
            )
            for kind in kinds.tolist()
        ]
    )
    steps: list[_Step] = []
    below_root = np.zeros((n_types, n_types))
    below, code = covariance, block_code
    for depth in range(len(spine.geolevels) - 2, -1, -1):
        level, children = spine.geolevels[depth], spine.geolevels[depth + 1]
        if children.name == known_at and known_sums is not None:
            step, below, code = _known(below, code, known_sums)
            steps.append(step)
            parent = _parent_of_each_sum(known_sums, children.parent)
        else:
            parent = children.parent
        order = np.argsort(parent, kind="stable")
        offsets = child_offsets(parent[order], len(level))
        information = precision[depth].matrices[precision[depth].code]
        total = _sums(below, code, offsets, order)
        if depth == 0:
            below_root = total[0]
            total = total if beside is None else total + beside
        step, below, code = _measured(total, offsets, order, information)
        steps.append(step)
    if spine.geolevels[0].name == known_at and known_sums is not None:
        steps.append(_known(below, code, known_sums)[0])
    return VectorEstimate(
        covariance, block_code, _with_lone(steps), LARGEST_VARIANCE / scale, below_root
    )


def _handed_down(
    spine: Spine, precision: Sequence[VectorPrecision], *, is_part: bool
) -> list[VectorPrecision]:
    """The same information, with that of every only child's parent given to the child.

    Their vectors are the same, and a bypass can leave all of it with the parent; but the recursion
    starts from blocks that have some of their own. Of a part of a spine the root has more children.
    """
    handed = list(precision)
    for depth, children in enumerate(spine.geolevels[1:], 1):
        above, below = handed[depth - 1], handed[depth]
        nothing = np.zeros((1, *above.matrices.shape[1:]))
        is_single = np.bincount(children.parent, minlength=len(above.code)) == 1
        if depth == 1 and is_part:
            is_single[:] = False
        given = np.append(above.matrices, nothing, axis=0)
        kept_code = np.where(is_single, len(above.matrices), above.code)
        given_code = np.where(is_single, above.code, len(above.matrices))[children.parent]
        pairs, code = np.unique(
            below.code.astype(np.int64) * len(given) + given_code, return_inverse=True
        )
        own, extra = np.divmod(pairs, len(given))
        handed[depth - 1] = VectorPrecision(given, kept_code)
        handed[depth] = VectorPrecision(below.matrices[own] + given[extra], code)
    return handed


def _block_covariance(information: np.ndarray, possible: np.ndarray, scale: float) -> np.ndarray:
    """Inverse of the information about what is possible, zero elsewhere."""
    covariance = np.zeros_like(information)
    here = np.ix_(possible, possible)
    values, vectors = np.linalg.eigh(information[here])
    covariance[here] = (vectors / np.maximum(values, SMALLEST_PRECISION * scale)) @ vectors.T
    return covariance


def _measured(
    total: np.ndarray,
    offsets: np.ndarray,
    order: np.ndarray,
    information: np.ndarray,
) -> tuple[_Step, np.ndarray, np.ndarray]:
    """The step to parents with these information matrices, and the parents' covariances; `total`
    (n_parents, k, k) are those of their children, added up."""
    gain = np.empty_like(total)
    identity = np.eye(total.shape[1])
    for start in range(0, len(total), GEOUNITS_PER_STEP):
        part = slice(start, start + GEOUNITS_PER_STEP)
        gain[part] = np.linalg.solve(identity + information[part] @ total[part], information[part])
    return _step(offsets, order, gain, total)


def _known(
    below: np.ndarray, code: np.ndarray, group: np.ndarray
) -> tuple[_Step, np.ndarray, np.ndarray]:
    """The step to groups of geounits whose sum over everything is known exactly."""
    order = np.argsort(group, kind="stable")
    offsets = np.append(np.flatnonzero(np.diff(group[order], prepend=-1)), len(group))
    total = _sums(below, code, offsets, order)
    variance = total.sum(axis=(1, 2))
    inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
    gain = np.broadcast_to(inverse[:, None, None], total.shape).copy()
    return _step(offsets, order, gain, total)


def _parent_of_each_sum(number: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """The one parent of the geounits of each number, in the order of the numbers."""
    _, first, place = np.unique(number, return_index=True, return_inverse=True)
    found = parent[first]
    if (found[place.reshape(-1)] != parent).any():
        raise ValueError("a sum that is known is one of geounits of several parents")
    return found


def _step(
    offsets: np.ndarray, order: np.ndarray, gain: np.ndarray, total: np.ndarray
) -> tuple[_Step, np.ndarray, np.ndarray]:
    rest = np.eye(total.shape[1]) - total @ gain
    after = rest @ total
    after = (after + after.transpose(0, 2, 1)) / 2
    return _Step(offsets, order, gain, rest, gain), after, np.arange(len(after))


def _with_lone(steps: Sequence[_Step]) -> tuple[_Step, ...]:
    """The steps with their matrices M, which follow from the last one down."""
    found: list[_Step] = []
    for step in reversed(steps):
        if found:
            above = found[-1]
            parent = np.empty(len(step.gain), dtype=np.int64)
            parent[above.children] = np.repeat(np.arange(len(above.gain)), np.diff(above.offsets))
            handed = step.rest.transpose(0, 2, 1) @ above.lone[parent] @ step.rest
            step = replace(step, lone=step.gain + handed)
        found.append(step)
    return tuple(reversed(found))


@numba.njit(cache=True, nogil=True)
def _sums(
    below: np.ndarray, code: np.ndarray, offsets: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """(n_parents, k, k) sums of the children's covariances, below[code[child]]."""
    total = np.zeros((len(offsets) - 1, below.shape[1], below.shape[2]))
    for parent in range(len(total)):
        for position in range(offsets[parent], offsets[parent + 1]):
            total[parent] += below[code[order[position]]]
    return total


@numba.njit(cache=True, nogil=True)
def _fold(
    offsets: np.ndarray,
    children: np.ndarray,
    gain: np.ndarray,
    rest: np.ndarray,
    lone: np.ndarray,
    entry_offsets: np.ndarray,
    entity: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    total: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Entries, pairs of a geounit and an entity that touch, with their P and Q one geolevel up.

    Entities that lie in one parent alone have none any more: their Q goes into `total`.
    """
    n_parents, k = len(offsets) - 1, p.shape[1]
    slot = np.full(len(total), -1, dtype=np.int64)
    n_entries = np.zeros(len(total), dtype=np.int64)
    for entry in range(len(entity)):
        n_entries[entity[entry]] += 1
    out_offsets = np.zeros(n_parents + 1, dtype=np.int64)
    out_entity = np.empty(len(entity), dtype=np.int32)
    out_p = np.empty((len(entity), k))
    out_q = np.empty(len(entity))
    n_here = np.empty(len(entity), dtype=np.int64)
    product = np.empty(k)
    end = 0
    for parent in range(n_parents):
        start = end
        for number in range(offsets[parent], offsets[parent + 1]):
            child = children[number]
            for entry in range(entry_offsets[child], entry_offsets[child + 1]):
                name = entity[entry]
                position = slot[name]
                if position < 0:
                    slot[name] = end
                    out_entity[end] = name
                    for i in range(k):
                        out_p[end, i] = p[entry, i]
                    out_q[end] = q[entry]
                    n_here[end] = 1
                    end += 1
                else:
                    for i in range(k):
                        out_p[position, i] += p[entry, i]
                    out_q[position] += q[entry]
                    n_here[position] += 1
        found, end = end, start
        for position in range(start, found):
            name = out_entity[position]
            slot[name] = -1
            is_lone = n_here[position] == n_entries[name]
            matrix = lone if is_lone else gain
            taken = 0.0
            for i in range(k):
                gained = 0.0
                for j in range(k):
                    gained += matrix[parent, i, j] * out_p[position, j]
                taken += out_p[position, i] * gained
            if is_lone:
                total[name] = out_q[position] - taken
                continue
            for i in range(k):
                product[i] = 0.0
                for j in range(k):
                    product[i] += rest[parent, i, j] * out_p[position, j]
            # Those before it that are done have left their place.
            out_entity[end] = name
            out_q[end] = out_q[position] - taken
            for i in range(k):
                out_p[end, i] = product[i]
            end += 1
        out_offsets[parent + 1] = end
    return out_offsets, out_entity[:end].copy(), out_p[:end].copy(), out_q[:end].copy()
