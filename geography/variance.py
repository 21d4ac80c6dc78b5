"""Variances of best linear unbiased estimates on a spine, and their derivatives: one recursion.

*Problem.* Each block has a vector of n counts, by cell, where impossible cells are known to be
zero, and a geounit the sum of its blocks' vectors. A geounit's measurements inform its vector x
with an information matrix A (n, n), the sum of H'H / variance over its noisy answers H x; its total
may be known exactly instead. The estimate is weighted least squares over the measurements of all
geounits at once. Asked are the variances of z = W x of areas, which are sets of blocks, whatever
part of each geounit they have. The Gram matrices H'H of queries do not commute, so that matrices
are carried; with n = 1 it is the recursion of totals alone. Problems that fall apart into S
independent components are computed side by side. Counts have no unit, variances are of counts.

*Recursion.* Going up the spine, let S be the error covariance of the estimate of x, P the
covariance of x with the area's part z of it, and q the variances of z, from the measurements below
alone. They add up over children. Taking in the geounit's own measurements gives, by the formula of
Woodbury,

    R = (I + S A)^-1,   K = A R,   S+ = R S,   P+ = R P,   q+ = q - diag(P' K P),

and for an exact total h'x the limit for A = a h h', a without bound: K = h h' / h'S h, R = I - S K.
Blocks begin with S = A^-1 on the cells that they can have, P = S W', q = diag(W S W'). At the root
q is the variance. It is exact: each step is the conditional distribution of normal variables, whose
covariances equal those of least squares, and measurements of disjoint subtrees are independent.

*Undetermined directions.* Where A is singular, the covariance of a block is V + k D, k without
bound, D projecting on the null space (`geography.conditioning`). V and D of x and z together add up
over children, answers that see D determine the part that they see, and the others act on V as
above. An answer that still sees D at the root is not determined: its variance is infinite.

*Derivatives.* With bars for derivatives of the sum of the q of areas of weights v, and where
nothing is without information, from the root down

    P~ = R' P~+ - 2 v K P
    S~ = R' S~+ R - R' P~+ (K P)' + v K P (K P)'
    A~ = -S+ S~+ S+ - S+ P~+ P+' - v P+ P+'

summed over the parts in a geounit, and the transposes of the sums lead one rung down. The
antisymmetric parts of S~ and A~ meet symmetric matrices alone, and have no effect. The cost is that
of the variances, whatever the number of precisions.

All of it is computed for classes of geounits (`geography.classes`), a few hundred in a state.

Report of a spine: sizes, fan-outs, off-spine distances and predicted standard deviations.

All of it is public: it is computed from the geography, the shares and declared invariants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from .categories import Category
from .classes import NOT_MEASURED, ClassedAreas, ClassedSpine, GeounitClasses
from .conditioning import RELATIVE_ZERO, PartialObservation, pseudo_inverse, root_of, see, symmetric
from .levels import Spine
from .optimize import off_spine_distances

TINY = 1e-12
"""Variance of a total, relative to the largest of its parts, from which it is known."""
ROUNDING = 1e-13
"""Variance, relative to the sum of the blocks' own, below which it is a rounding error of 0."""
MOST_NUMBERS = 1 << 22
"""Numbers of the matrices that are laid side by side at once: 32 MiB."""


@dataclass(frozen=True, eq=False)
class _Rung:
    """Matrices (C, S, n, n) of the classes of a rung, in the names of the module's docstring.

    diffuse : D with everything below and of the geounit itself; None where nothing is left.
    seen : by class and component, for the pairs where D was seen.
    """

    gain: np.ndarray
    rest: np.ndarray
    after: np.ndarray
    diffuse: np.ndarray | None
    seen: Mapping[tuple[int, int], PartialObservation]


class _Diffuse(NamedTuple):
    """The multiples of k in P and q, (E, S, n, z) and (E, S, z); size : the sums of the squares of
    W over blocks."""

    p: np.ndarray
    q: np.ndarray
    size: np.ndarray


@dataclass(frozen=True, eq=False)
class _Parts:
    """P (E, S, n, z) and q (E, S, z) of the parts of areas in a rung's classes.

    size : (E, S, z) the sums of the blocks' own q. gained : K P before, None of blocks.
    diffuse : None where everything is determined.
    """

    p: np.ndarray
    q: np.ndarray
    size: np.ndarray
    gained: np.ndarray | None = None
    diffuse: _Diffuse | None = None


@dataclass(frozen=True, eq=False)
class Covariances:
    """The covariances up a spine, from which the variances of areas follow."""

    spine: ClassedSpine
    rungs: tuple[_Rung, ...]
    below_root: np.ndarray
    """(2, S, n, n) the sums of V and D of the root's children."""

    @classmethod
    def of(
        cls,
        spine: ClassedSpine,
        information: np.ndarray,
        *,
        exact: Sequence[int] = (0,),
        prior: float = 0.0,
        beside: np.ndarray | None = None,
    ) -> Covariances:
        """Covariances from measurements.

        Args:
            information: (rows, S, n, n) the matrix A of each row of `spine.information`.
            exact: the components that known totals involve.
            prior: information about every coordinate of a block, which makes all determined.
            beside: (2, S, n, n) `below_root` of the rest of a larger spine, if this one is the part
                below some of the root's children. None for a whole spine.
        """
        first = _blocks(information[spine.rungs[0].information], spine.cells, prior)
        rungs = [first]
        total = np.zeros((2, *information.shape[1:]))
        for number, unit in enumerate(spine.rungs[1:], 1):
            assert unit.children is not None, "only blocks have none"
            below = _sum_classes(unit.children, rungs[-1].after)
            unseen = rungs[-1].diffuse
            diffuse = None if unseen is None else _sum_classes(unit.children, unseen)
            if number == len(spine.rungs) - 1 - spine.rungs[-1].is_exact:
                total[0] = below[0]
                total[1] = 0.0 if diffuse is None else diffuse[0]
                if beside is not None:
                    below, diffuse = below + beside[0], total[1:] + beside[1]
            own = information[unit.information]
            rungs.append(_absorb_children(unit, below, diffuse, own, exact))
        return cls(spine, tuple(rungs), total)

    def variances(self, areas: ClassedAreas, asked: np.ndarray) -> np.ndarray:
        """(n_areas, S, z) variances of the sums `asked` (z, n) of the vectors of areas.

        Infinite where the measurements do not determine it.
        """
        most = max(len(rung.owner) for rung in areas.rungs) * self.below_root[0].size
        at_once = max(1, MOST_NUMBERS * asked.shape[1] // max(most, 1))
        parts = [asked[start : start + at_once] for start in range(0, len(asked), at_once)]
        return np.concatenate([self._variances(areas, own) for own in parts], axis=-1)

    def _variances(self, areas: ClassedAreas, asked: np.ndarray) -> np.ndarray:
        """As `variances`, of all sums at once."""
        *_, root = self._parts(areas, asked)
        q = np.where(root.q < ROUNDING * root.size, 0.0, root.q)
        if root.diffuse is not None:
            q = np.where(root.diffuse.q > RELATIVE_ZERO * root.diffuse.size, np.inf, q)
        return q[areas.code]

    def slopes(self, areas: ClassedAreas, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances summed over areas and rows of `asked` (S,), and their derivatives by the
        information matrices (rows, S, n, n); everything is to be determined, as with a `prior`.
        """
        parts = list(self._parts(areas, asked))
        value = np.einsum("e,esz->s", areas.rungs[-1].weight, parts[-1].q)
        return value, self._back(areas, asked, parts)

    def _parts(self, areas: ClassedAreas, asked: np.ndarray) -> Iterator[_Parts]:
        """The parts of areas on every rung, blocks first."""
        part = None
        for rung, classes in zip(self.rungs, areas.rungs, strict=True):
            if part is None or classes.parts is None:
                part = _block_parts(rung, classes.owner, asked)
            else:
                counts = classes.parts
                p, q, size = (_sum_classes(counts, own) for own in (part.p, part.q, part.size))
                summed = _Parts(p, q, size)
                if part.diffuse is not None:
                    diffuse = _Diffuse(*(_sum_classes(counts, own) for own in part.diffuse))
                    summed = replace(summed, diffuse=diffuse)
                part = _condition_parts(rung, classes.owner, summed)
            yield part

    def _back(self, areas: ClassedAreas, asked: np.ndarray, parts: Sequence[_Parts]) -> np.ndarray:
        """Derivatives (rows, S, n, n) by the information matrices; see the module's docstring."""
        shape = self.below_root.shape[1:]
        found = np.zeros((self.spine.information.shape[0], *shape))
        of_units = np.zeros_like(self.rungs[-1].after)
        of_parts = np.zeros_like(parts[-1].p)
        levels = zip(self.spine.rungs, self.rungs, areas.rungs, parts, strict=True)
        for unit, rung, classes, part in reversed(list(levels)):
            owner, weight = classes.owner, classes.weight[:, None, None, None]
            if classes.parts is None or unit.children is None or part.gained is None:
                outer = (of_parts + weight * asked.T) @ asked
                bar = of_units + _sum_by_owner(outer, owner, len(unit))
                np.add.at(found, unit.information, -rung.after @ bar @ rung.after)
                break
            back = rung.rest.swapaxes(-1, -2)[owner] @ of_parts
            below_parts = back - 2 * weight * part.gained
            outer = (weight * part.gained - back) @ part.gained.swapaxes(-1, -2)
            below_units = rung.rest.swapaxes(-1, -2) @ of_units @ rung.rest
            below_units += _sum_by_owner(outer, owner, len(unit))
            measured = np.flatnonzero(unit.information != NOT_MEASURED)
            if measured.size:
                outer = weight * part.p + rung.after[owner] @ of_parts
                own = _sum_by_owner(outer @ part.p.swapaxes(-1, -2), owner, len(unit))
                own += rung.after @ of_units @ rung.after
                np.add.at(found, unit.information[measured], -own[measured])
            of_units = _sum_classes(unit.children.T, below_units)
            of_parts = _sum_classes(classes.parts.T, below_parts)
        found[NOT_MEASURED] = 0.0
        return found


def _sum_classes(counts: sparse.csr_array | sparse.csc_array, values: np.ndarray) -> np.ndarray:
    """Sums of the values (C, ...) of the classes below, by how often each is there."""
    flat = counts @ values.reshape(len(values), math.prod(values.shape[1:]))
    return np.asarray(flat).reshape(counts.shape[0], *values.shape[1:])


def _sum_by_owner(values: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    """Sums (n, ...) of the parts' values over the parts of each class of geounits."""
    parts = np.ones(len(owner)), owner, np.arange(len(owner) + 1)
    return _sum_classes(sparse.csc_array(parts, (n, len(owner))), values)


def _blocks(information: np.ndarray, cells: np.ndarray, prior: float) -> _Rung:
    """V and D of blocks from their information (C, S, n, n), on the cells (C, n) they can have."""
    n = cells.shape[1]
    square = (cells[:, :, None] & cells[:, None, :])[:, None]
    inverse, null = pseudo_inverse(np.where(square, information + prior * np.eye(n), 0.0))
    after = np.where(square, inverse, 0.0)
    # Cells that a block cannot have are in the null space, too.
    impossible = n - cells.sum(axis=1)[:, None]
    is_left = np.trace(null, axis1=-2, axis2=-1).round() > impossible
    diffuse = None
    if is_left.any():
        diffuse = np.where(square & is_left[..., None, None], null, 0.0)
    none = np.zeros((0, *after.shape[1:]))
    return _Rung(none, none, after, diffuse, {})


def _absorb_children(
    unit: GeounitClasses,
    below: np.ndarray,
    diffuse: np.ndarray | None,
    information: np.ndarray,
    exact: Sequence[int],
) -> _Rung:
    """The step of a rung, from the sums of its children's V and D and its own information."""
    identity = np.eye(below.shape[-1])
    seen: dict[tuple[int, int], PartialObservation] = {}
    if diffuse is not None:
        diffuse, below, information = diffuse.copy(), below.copy(), information.copy()
        for place in np.argwhere(diffuse.any(axis=(-1, -2))).tolist():
            at = place[0], place[1]
            if unit.is_exact and at[1] in exact:
                root, noise = np.ones((len(identity), 1)), 0.0
            else:
                root, noise = root_of(information[at]), 1.0
            found = see(root, noise, below[at], diffuse[at])
            if found is not None:
                seen[at], below[at], diffuse[at], left = found
                information[at] = left @ left.T
        diffuse = diffuse if diffuse.any() else None
    if unit.is_exact:
        gain = np.zeros_like(below)
        for component in exact:
            own = below[:, component]
            of_total = own.sum(axis=(-1, -2), keepdims=True)
            is_known = of_total <= TINY * np.abs(own).max(axis=(-1, -2), keepdims=True)
            gain[:, component] = np.where(is_known, 0.0, 1.0) / np.where(is_known, 1.0, of_total)
        rest = identity - below @ gain
    else:
        gain = symmetric(np.linalg.solve(identity + information @ below, information))
        rest = identity - below @ gain
    return _Rung(gain, rest, symmetric(rest @ below), diffuse, seen)


def _block_parts(rung: _Rung, owner: np.ndarray, asked: np.ndarray) -> _Parts:
    """The parts that are whole blocks."""
    p = rung.after[owner] @ asked.T
    q = np.einsum("zn,esnz->esz", asked, p)
    if rung.diffuse is None:
        return _Parts(p, q, q)
    diffuse_p = rung.diffuse[owner] @ asked.T
    diffuse_q = np.einsum("zn,esnz->esz", asked, diffuse_p)
    size = np.broadcast_to((asked**2).sum(axis=1), diffuse_q.shape)
    return _Parts(p, q, q, diffuse=_Diffuse(diffuse_p, diffuse_q, size))


def _condition_parts(rung: _Rung, owner: np.ndarray, sums: _Parts) -> _Parts:
    """Parts given their geounits' measurements, from the sums over the children's parts."""
    p, q, diffuse = sums.p, sums.q, sums.diffuse
    if diffuse is not None:
        # The sums are new arrays, which nothing else has.
        diffuse_p, diffuse_q, _ = diffuse
        for (number, component), step in rung.seen.items():
            for at in ((row, component) for row in np.flatnonzero(owner == number).tolist()):
                seen = step.rows @ diffuse_p[at]
                follows = seen / step.size[:, None]
                q[at] += (follows * (step.noise @ follows - 2 * step.rows @ p[at])).sum(axis=0)
                moved = step.noise @ follows - step.rows @ p[at]
                p[at] += step.gain @ moved - step.covariance @ step.rows.T @ follows
                diffuse_q[at] -= (follows * seen).sum(axis=0)
                diffuse_p[at] -= step.gain @ seen
    gained, after = np.empty_like(p), np.empty_like(p)
    at_once = max(1, MOST_NUMBERS // rung.gain[0].size)
    for start in range(0, len(owner), at_once):
        chosen = slice(start, start + at_once)
        gained[chosen] = rung.gain[owner[chosen]] @ p[chosen]
        after[chosen] = rung.rest[owner[chosen]] @ p[chosen]
    q = q - (gained * p).sum(axis=-2)
    return _Parts(after, q, sums.size, gained, diffuse)


def measurement_precision(
    spine: Spine,
    *,
    is_pure: bool,
    privacy_loss: float = 1.0,
    total_shares: Mapping[str, float] | None = None,
) -> tuple[np.ndarray, ...]:
    """Precision of each geounit's noisy total, one array per geolevel, root first.

    zCDP: 1 / sigma^2 = rho * share(g) * total share(l). Pure DP: the Laplace scale is
    b = 2 / (epsilon * share(g) * total share(l)), the precision 1 / (2 b^2).

    Args:
        privacy_loss: rho, or epsilon if `is_pure`.
        total_shares: share of a geolevel's budget that measures the total, 1 where a geolevel is
            absent; see `total_share`.
    """
    total_shares = total_shares or {}
    precision = []
    for level in spine.geolevels:
        loss = privacy_loss * total_shares.get(level.name, 1.0) * level.shares()
        precision.append(loss**2 / 8 if is_pure else loss)
    return tuple(precision)


def total_share(
    query_shares: Sequence[float], n_answers: Sequence[float], *, is_pure: bool
) -> float:
    """Share of a geolevel's budget that one query of the total would need to estimate it as
    precisely as all queries of the geolevel do.

    A query with m answers measures the total by their sum, of variance m sigma^2, so precisions
    share / m add up (share^2 / m under pure DP). That is exact where all queries are marginals,
    whose Gram matrices have the vector of ones as a common eigenvector; a coarsening into groups
    of unequal size gives slightly more.

    Example: half of the budget on the total and half on a marginal of two answers is, under zCDP,
    as good as three quarters on the total.
    """
    shares, answers = np.asarray(query_shares, dtype=float), np.asarray(n_answers, dtype=float)
    if is_pure:
        return float(np.sqrt((shares**2 / answers).sum()))
    return float((shares / answers).sum())


def total_covariances(spine: Spine, precision: Sequence[np.ndarray]) -> Covariances:
    """Covariances of the geounits' totals, from the precision of each one's noisy total.

    Args:
        precision: one array per geolevel, root first; see `measurement_precision`.
    """
    values, kinds = np.unique(np.concatenate(precision), return_inverse=True)
    kinds = np.where(values[kinds] > 0, kinds.reshape(-1), -1)
    of_level = np.split(kinds, np.cumsum([len(level) for level in spine.geolevels])[:-1])
    classed = ClassedSpine.build(spine, of_level, np.ones((spine.n_blocks, 1), dtype=bool))
    counted = classed.information
    information = counted @ values[: counted.shape[1]]
    return Covariances.of(classed, information[:, None, None, None])


def entity_variances(spine: Spine, category: Category, totals: Covariances) -> np.ndarray:
    """(n_entities,) float64 variance of the estimated total of every entity of a category.

    Infinite where the measurements do not determine the total; 0 for an entity without blocks.

    Args:
        totals: `total_covariances` of the spine.

    Example: one parent with two children, all measured with variance 1: the total of one child
    has variance 2/3, the parent's total too.
    """
    found = np.zeros(len(category))
    areas = totals.spine.areas(category.entity[spine.block_row])
    found[areas.area] = totals.variances(areas, np.ones((1, 1)))[:, 0, 0]
    return found


QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, eq=False)
class SpineSummary:
    """Frames for the report of one universe."""

    geounits: pd.DataFrame
    """spine, geolevel, geounits, aian_geounits, bypassed, measured, distinct_shares."""
    fan_out: pd.DataFrame
    """spine, geolevel (of the parent), n_children, geounits: how many parents have so many."""
    distances: pd.DataFrame
    """spine, category, entities, mean, quantiles ("q50", ...), max of the off-spine distance."""
    standard_deviations: pd.DataFrame
    """spine, category, entities, mean, quantiles, max of the predicted standard deviation of an
    entity's total."""
    tabulated: pd.DataFrame
    """As `standard_deviations`, and blocks, how many an entity has on average: of the areas that
    tables are of."""


def summarise_spines(
    spines: Mapping[str, Spine],
    categories: Sequence[Category],
    tabulated: Sequence[Category] = (),
    *,
    is_pure: bool,
    privacy_loss: float = 1.0,
    total_shares: Mapping[str, float] | None = None,
) -> SpineSummary:
    """Compare spines of one geography, for example {"aian": before, "optimized": after}.

    Statistics run over the targeted entities of each category; the area outside all entities is
    left out.

    Args:
        tabulated: categories of the areas that tables are of.
        privacy_loss: rho, or epsilon if `is_pure`.
        total_shares: share that measures the total, by geolevel; see `measurement_precision`.
    """
    distances, deviations, of_tables = [], [], []
    for label, spine in spines.items():
        precision = measurement_precision(
            spine, is_pure=is_pure, privacy_loss=privacy_loss, total_shares=total_shares
        )
        totals = total_covariances(spine, precision)
        for number, category in enumerate((*categories, *tabulated)):
            targeted = category.targeted()
            if not targeted.any():
                continue
            head = {"spine": label, "category": category.name, "entities": int(targeted.sum())}
            deviation = np.sqrt(entity_variances(spine, category, totals)[targeted])
            if number < len(categories):
                distance = off_spine_distances(spine, category)[targeted]
                distances.append(head | statistics(distance))
                deviations.append(head | statistics(deviation))
            else:
                blocks = np.bincount(category.entity[spine.block_row], minlength=len(category))
                mean = {"blocks": float(blocks[targeted].mean())}
                of_tables.append(head | mean | statistics(deviation))
    return SpineSummary(
        geounits=_label_frames({label: geounit_counts(spine) for label, spine in spines.items()}),
        fan_out=_label_frames({label: fan_out(spine) for label, spine in spines.items()}),
        distances=pd.DataFrame(distances),
        standard_deviations=pd.DataFrame(deviations),
        tabulated=pd.DataFrame(of_tables, columns=[*TABULATED, *STATISTICS]),
    )


TABULATED = ("spine", "category", "entities", "blocks")
STATISTICS = ("mean", *(f"q{round(100 * q)}" for q in QUANTILES), "max")
APPRECIABLE = 1.1
"""Ratio of deviations from which one is said to exceed the other."""


def noisier_than_larger(deviations: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Categories whose entities have more noise than larger ones of another category.

    Args:
        deviations: rows of one spine of `SpineSummary.tabulated`.

    Returns:
        Pairs of rows: a category, and the next larger one whose mean deviation is not 0 and
        appreciably smaller; the smallest entities first.

    Example: block groups of deviation 17 in tracts of deviation 2.
    """
    rows = deviations.sort_values("blocks", kind="stable").to_dict("records")
    found = []
    for place, row in enumerate(rows):
        better = (
            other
            for other in rows[place + 1 :]
            if other["blocks"] > row["blocks"] and 0 < APPRECIABLE * other["mean"] < row["mean"]
        )
        larger = next(better, None)
        if larger is not None and math.isfinite(row["mean"]):
            found.append((row, larger))
    return found


def fan_out(spine: Spine) -> pd.DataFrame:
    """geolevel, n_children, geounits: how many geounits of a geolevel have so many children."""
    counts = {name: np.bincount(np.diff(spine.children(name))) for name in spine.names[:-1]}
    return pd.DataFrame(
        {"geolevel": name, "n_children": n_children, "geounits": int(n)}
        for name, count in counts.items()
        for n_children, n in enumerate(count)
        if n
    )


def geounit_counts(spine: Spine) -> pd.DataFrame:
    """geolevel, geounits, aian_geounits, bypassed, measured, distinct_shares; root first."""
    return pd.DataFrame(
        {
            "geolevel": level.name,
            "geounits": len(level),
            "aian_geounits": int(level.is_aian.sum()),
            "bypassed": int(level.bypassed.sum()),
            "measured": int((~level.bypassed).sum()),
            "distinct_shares": len(level.plb_shares),
        }
        for level in spine.geolevels
    )


def _label_frames(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, names=["spine"]).reset_index("spine").reset_index(drop=True)


def statistics(values: np.ndarray) -> dict[str, float]:
    """Mean, quantiles and maximum of some values, by the names of a summary's columns."""
    quantiles = np.quantile(values, QUANTILES)
    named = {f"q{round(100 * q)}": float(v) for q, v in zip(QUANTILES, quantiles, strict=True)}
    return {"mean": float(values.mean()), **named, "max": float(values.max())}
