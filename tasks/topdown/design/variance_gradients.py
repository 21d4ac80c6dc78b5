"""Variances of estimates from all measurements of a spine, and their derivatives by the precisions.

In the coordinates of `tasks.topdown.estimation.query_algebra` every component is a problem of its
own, on the core cells. For one component let A be the information of a geounit's own measurements
(or of exact totals, without bound), S the covariance of its estimate from its children, and

    R = (I + S A)^-1,    K = A R,    S+ = R S

(for an exact total h'x: K = h h' / h'S h, R = I - S K). For an area whose answers are z = W x, P is
the covariance of what is estimated of the geounit with the area's part in it, and q the trace of
the covariance of that part. Taking in the geounit's own measurements gives

    P+ = R P,    q+ = q - tr(P' K P),

sums over children lead one rung up, the blocks of an area begin with P = S W' and q = tr(W S W'),
and q at the root is the variance, summed over the rows of W. This is `geography.vector_variance`
with a matrix in the place of a weight.

Derivatives go the same way back. With bars for derivatives of a sum of the q, of weights v,

    P~ = R' P~+ - 2 v K P
    S~ = R' S~+ R - R' P~+ (K P)' + v K P (K P)'
    A~ = -S+ S~+ S+ - S+ P~+ P+' - v P+ P+'

summed over the parts in a geounit, and the transposes of the sums lead one rung down. What is not
symmetric in S~ and A~ meets symmetric matrices alone, and does nothing. The cost is that of the
variances, whatever the number of precisions.

What nothing measures would have an infinite variance; blocks are therefore given a little
information about everything (`PRIOR`), which makes no variance larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .spine_classes import (
    NOT_MEASURED,
    ClassedAreas,
    ClassedSpine,
    PartClasses,
    UnitClasses,
)

PRIOR = 1e-7
"""Information about every coordinate of a block, relative to a precision of 1."""
TINY = 1e-12
"""Variance of a total, relative to the largest of its parts, from which it is known."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Areas, and the sums over core cells that are asked of them, (z, n)."""

    areas: ClassedAreas
    core: np.ndarray


@dataclass(frozen=True, eq=False)
class _Group:
    """Classes of a rung that can have as many cells: rows (g,), and the cells (g, k) of each.

    rest, gain : R and K, (g, S, k, k); None where nothing is measured. after : S+.
    """

    rows: np.ndarray
    cells: np.ndarray
    rest: np.ndarray | None
    gain: np.ndarray | None
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class _PartGroup:
    """Parts in the geounits of a group: rows (e,), and the place of each one's geounit in it.

    gained, after : K P and P+, (e, S, k, z).
    """

    rows: np.ndarray
    owner: np.ndarray
    gained: np.ndarray | None
    after: np.ndarray


def summed_variances(
    spine: ClassedSpine, grams: np.ndarray, precision: np.ndarray, asked: Sequence[Asked]
) -> tuple[np.ndarray, np.ndarray]:
    """Variances by component, summed over rows of `core` and over areas, and their derivatives.

    Args:
        grams: (Q, S, n, n) Gram matrices of the queries on all core cells.
        precision: (kinds, Q) inverse variance of every kind's answers to every query.

    Returns `(asked, S)` and `(asked, S, kinds, Q)`.

    Example: one block of one cell, measured with precision 4, has the variance 1/4, and its
    derivative is -1/16.
    """
    information = np.tensordot(spine.information @ precision, grams, axes=1)
    rungs = _up(spine, information)
    values, derivatives = [], []
    for one in asked:
        value, of_information = _of_areas(spine, rungs, one)
        by_kind = spine.information.T @ of_information.reshape(len(of_information), -1)
        by_kind = by_kind.reshape(-1, *of_information.shape[1:])
        values.append(value)
        derivatives.append(np.einsum("tsij,qsij->stq", by_kind, grams, optimize=True))
    return np.array(values), np.array(derivatives)


def _up(spine: ClassedSpine, information: np.ndarray) -> list[list[_Group]]:
    """The groups of every rung, blocks first."""
    n_components, n = information.shape[1:3]
    rungs: list[list[_Group]] = []
    after = np.zeros(0)
    for rung in spine.rungs:
        groups, sums = [], after
        if rung.children is not None:
            sums = (rung.children @ after.reshape(len(after), -1)).reshape(-1, *after.shape[1:])
        after = np.zeros((len(rung), n_components, n, n))
        for rows, cells in _patterns(rung):
            codes = rung.information[rows]
            own = information[codes][_square(np.arange(len(rows)), cells, n_components)]
            at = _square(rows, cells, n_components)
            if rung.children is None:
                found = np.linalg.inv(own + PRIOR * np.eye(cells.shape[1]))
                group = _Group(rows, cells, None, None, found)
            elif rung.is_exact:
                group = _given_total(rows, cells, sums[at])
            elif (codes != NOT_MEASURED).any():
                group = _measured(rows, cells, sums[at], own)
            else:
                group = _Group(rows, cells, None, None, sums[at])
            after[at] = group.after
            groups.append(group)
        rungs.append(groups)
    return rungs


def _measured(
    rows: np.ndarray, cells: np.ndarray, below: np.ndarray, information: np.ndarray
) -> _Group:
    """A group from the covariances `below` of its sums of children, and what it measures."""
    rest = np.linalg.inv(np.eye(cells.shape[1]) + below @ information)
    return _Group(rows, cells, rest, _symmetric(information @ rest), _symmetric(rest @ below))


def _given_total(rows: np.ndarray, cells: np.ndarray, below: np.ndarray) -> _Group:
    """A group whose totals are exact; only the first component has to do with them."""
    of_total = below[:, :1].sum(axis=(-2, -1), keepdims=True)
    is_known = of_total <= TINY * np.abs(below[:, :1]).max(axis=(-2, -1), keepdims=True)
    gain = np.zeros_like(below)
    gain[:, :1] = np.where(is_known, 0.0, 1.0) / np.where(is_known, 1.0, of_total)
    rest = np.eye(cells.shape[1]) - below @ gain
    return _Group(rows, cells, rest, gain, _symmetric(rest @ below))


def _of_areas(
    spine: ClassedSpine, rungs: Sequence[Sequence[_Group]], asked: Asked
) -> tuple[np.ndarray, np.ndarray]:
    """Summed variances (S,), and their derivatives by the information matrices (n, S, n, n)."""
    areas, core = asked.areas, asked.core
    n_components, n = rungs[0][0].after.shape[1], core.shape[1]
    value = np.zeros(n_components)
    passed: list[dict[int, _PartGroup]] = []
    after = np.zeros(0)
    for rung, groups, parts in zip(spine.rungs, rungs, areas.rungs, strict=True):
        if parts.parts is not None:
            sums = parts.parts @ after.reshape(len(after), -1)
            sums = sums.reshape(-1, *after.shape[1:])
        after = np.zeros((len(parts.owner), n_components, n, len(core)))
        found = {}
        for number, rows, owner in _met(groups, parts, len(rung)):
            group = groups[number]
            at = _rows_of(rows, group.cells[owner], n_components)
            if parts.parts is None:
                seen = core.T[group.cells[owner]][:, None]
                part = _PartGroup(rows, owner, None, group.after[owner] @ seen)
                value += np.einsum("e,eskz,ekz->s", parts.weight[rows], part.after, seen[:, 0])
            elif group.gain is None or group.rest is None:
                part = _PartGroup(rows, owner, None, sums[at])
            else:
                gained = group.gain[owner] @ sums[at]
                part = _PartGroup(rows, owner, gained, group.rest[owner] @ sums[at])
                value -= np.einsum("e,eskz,eskz->s", parts.weight[rows], gained, sums[at])
            after[at] = part.after
            found[number] = part
        passed.append(found)
    return value, _back(spine, rungs, asked, passed)


def _back(
    spine: ClassedSpine,
    rungs: Sequence[Sequence[_Group]],
    asked: Asked,
    passed: Sequence[Mapping[int, _PartGroup]],
) -> np.ndarray:
    """Derivatives (n, S, n, n) by the information matrices; see the module's docstring."""
    areas, core = asked.areas, asked.core
    n_components, n = rungs[0][0].after.shape[1], core.shape[1]
    found = np.zeros((spine.information.shape[0], n_components, n, n))
    of_units = np.zeros((len(spine.rungs[-1]), n_components, n, n))
    of_parts = np.zeros((len(areas.rungs[-1].owner), n_components, n, len(core)))
    levels = zip(spine.rungs, rungs, areas.rungs, passed, strict=True)
    for rung, groups, parts, here in reversed(list(levels)):
        below_units, below_parts = np.zeros_like(of_units), np.zeros_like(of_parts)
        for number, group in enumerate(groups):
            at = _square(group.rows, group.cells, n_components)
            bar = of_units[at]
            extra_below, of_own = np.zeros_like(bar), np.zeros_like(bar)
            if (part := here.get(number)) is not None:
                rows, owner = part.rows, part.owner
                where = _rows_of(rows, group.cells[owner], n_components)
                bar_part, weight = of_parts[where], parts.weight[rows][:, None, None, None]
                if parts.parts is None:
                    seen = core.T[group.cells[owner]][:, None]
                    outer = (bar_part + weight * seen) @ seen.swapaxes(-1, -2)
                    bar = bar + _summed(outer, owner, bar)
                elif group.rest is None or part.gained is None:
                    below_parts[where] = bar_part
                else:
                    back = group.rest[owner].swapaxes(-1, -2) @ bar_part
                    below_parts[where] = back - 2 * weight * part.gained
                    outer = (weight * part.gained - back) @ part.gained.swapaxes(-1, -2)
                    extra_below = _summed(outer, owner, bar)
                    outer = weight * part.after + group.after[owner] @ bar_part
                    of_own = -_summed(outer @ part.after.swapaxes(-1, -2), owner, bar)
            if group.rest is None:
                below_units[at] = bar
            else:
                below_units[at] = group.rest.swapaxes(-1, -2) @ bar @ group.rest + extra_below
            codes = rung.information[group.rows]
            if (codes != NOT_MEASURED).any():
                full = np.zeros((len(codes), n_components, n, n))
                own = _square(np.arange(len(codes)), group.cells, n_components)
                full[own] = of_own - group.after @ bar @ group.after
                np.add.at(found, codes, full)
        if rung.children is not None and parts.parts is not None:
            flat = rung.children.T @ below_units.reshape(len(rung), -1)
            of_units = flat.reshape(-1, n_components, n, n)
            flat = parts.parts.T @ below_parts.reshape(len(parts.owner), -1)
            of_parts = flat.reshape(-1, n_components, n, len(core))
    return found


def _patterns(rung: UnitClasses) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of the classes that can have as many cells, and the cells (g, k) of each."""
    sizes = rung.cells.sum(axis=1)
    for size in np.unique(sizes[sizes > 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        yield rows, np.nonzero(rung.cells[rows])[1].reshape(len(rows), size)


def _met(
    groups: Sequence[_Group], parts: PartClasses, n_classes: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Number of each group in whose geounits parts lie, these parts, and their geounits' places in
    the group."""
    number, place = np.full((2, n_classes), -1)
    for which, group in enumerate(groups):
        number[group.rows], place[group.rows] = which, np.arange(len(group.rows))
    of_part = number[parts.owner]
    for which in range(len(groups)):
        rows = np.flatnonzero(of_part == which)
        if rows.size:
            yield which, rows, place[parts.owner[rows]]


def _square(rows: np.ndarray, cells: np.ndarray, n_components: int) -> tuple[np.ndarray, ...]:
    """Index of the matrices (g, S, k, k) on each row's cells."""
    components = np.arange(n_components)[None, :, None, None]
    return rows[:, None, None, None], components, cells[:, None, :, None], cells[:, None, None, :]


def _rows_of(rows: np.ndarray, cells: np.ndarray, n_components: int) -> tuple[np.ndarray, ...]:
    """Index of the matrices (e, S, k, z) on each row's cells."""
    return rows[:, None, None], np.arange(n_components)[None, :, None], cells[:, None, :]


def _summed(values: np.ndarray, owner: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Sums of the parts' matrices (e, S, k, k) over the parts of each of the group's classes."""
    n_parts = len(owner)
    sums = sparse.csr_array((np.ones(n_parts), (owner, np.arange(n_parts))), (len(like), n_parts))
    return (sums @ values.reshape(n_parts, -1)).reshape(like.shape)


def _symmetric(matrices: np.ndarray) -> np.ndarray:
    return 0.5 * (matrices + matrices.swapaxes(-1, -2))
