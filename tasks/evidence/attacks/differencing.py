"""Attacks that put published figures together: differences of zonings, and averages over tables.

Where some zones of one zoning cover, or are within, zones of another, the difference of their
published figures is a figure of the sliver between them [Differencing1998]. Zones that overlap are
joined in a graph; zones of one zoning, and pairs of neighbours, are compared with the smallest
cover and with the largest part of zones of the other.

Noise is averaged away over all published figures that share cells. A total that was perturbed on
its own is also the sum of the perturbed parts of every table that splits it [Averaging2020]. Least
squares makes the best of all of them at once; rounded, it is the exact count once enough tables are
out: (2 z)^2 V independent answers of variance V, which for 95 % are 15.4 V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import sparse

from ...census.queries import incidence
from ..ingest import RequestedTable
from .reconstruction import UNBOUNDED, TableSystem
from .release import Release, Row, figures


@dataclass(frozen=True)
class Zonings:
    """Two zonings of the same units (blocks, grid cells): the zone of every unit in each.

    An atom is a set of units in the same zone of both. `overlap` has the number of the atom, from 1
    on, by first and second zone; `atom` is the number of every unit's atom, from 0 on.
    """

    overlap: sparse.csr_array
    atom: np.ndarray


def zonings(first: np.ndarray, second: np.ndarray) -> Zonings:
    """The atoms of two zonings, each given by the zone of every unit, counted from 0."""
    shape = int(first.max()) + 1, int(second.max()) + 1
    places, atom = np.unique(np.ravel_multi_index((first, second), shape), return_inverse=True)
    where = np.unravel_index(places, shape)
    numbers = np.arange(1, len(places) + 1)
    return Zonings(sparse.csr_array((numbers, where), shape=shape), atom)


@dataclass(frozen=True)
class Differences:
    """Slivers: differences of published figures between zones of two zonings.

    `first`, `second` and `atoms` have a row for every sliver: +1 for zones that are added, -1 for
    those taken away, and 1 for its atoms.
    """

    first: sparse.csr_array
    second: sparse.csr_array
    atoms: sparse.csr_array

    def among(self, chosen: np.ndarray) -> Differences:
        """Some of the slivers, by mask or number."""
        places = np.arange(self.atoms.shape[0])[chosen]
        return Differences(self.first[places], self.second[places], self.atoms[places])

    def figures(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Differences of figures `(zones,)` that were published of the zones of each."""
        return np.asarray(self.first @ first + self.second @ second)

    def bounds(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the slivers from lower and upper bounds of the zones' figures; none below 0."""
        lower = upper = np.zeros(self.atoms.shape[0])
        for signs, (low, high) in ((self.first, first), (self.second, second)):
            added, taken = signs.maximum(0), (-signs).maximum(0)
            lower = lower + added @ low - taken @ high
            upper = upper + added @ high - taken @ low
        return np.maximum(lower, 0), upper


def differences(zoning: Zonings) -> Differences:
    """All slivers between groups of zones and their covers and parts, each of them once.

    Groups are single zones of one zoning, and pairs of neighbours: zones that share a zone of the
    other. The cover of a group is every zone of the other zoning that it touches, its part every
    zone of the other that is within it.
    """
    pairs = zoning.overlap.tocoo()
    order = np.argsort(pairs.data)
    # (zones, atoms) 0/1, and the zones of either zoning that share an atom.
    of_atoms = [incidence(own[order], n) for own, n in zip(pairs.coords, pairs.shape, strict=True)]
    found = []
    for side, (own, other) in enumerate((of_atoms, of_atoms[::-1])):
        touch = sparse.csr_array(own @ other.T)
        groups = _zones_and_pairs(touch)
        touched = sparse.csr_array(groups @ touch)
        cover, part = (touched > 0).astype(np.int64), touched.copy()
        part.data = (part.data == touch.sum(axis=0)[part.indices]).astype(np.int64)
        for others, sign in ((cover, -1), (part, 1)):
            atoms = sparse.csr_array(sign * (groups @ own - others @ other))
            used = np.asarray((atoms.sum(axis=1) > 0) & (others.sum(axis=1) > 0))
            signs = sign * groups[used], -sign * others[used]
            found.append((*(signs[::-1] if side else signs), atoms[used]))
    first, second, atoms = (
        sparse.csr_array(sparse.vstack(parts)) for parts in zip(*found, strict=True)
    )
    atoms.eliminate_zeros()
    atoms.sort_indices()
    rows = np.split(atoms.indices, atoms.indptr[1:-1])
    numbers = {row.tobytes(): number for number, row in reversed([*enumerate(rows)])}
    return Differences(first, second, atoms).among(np.array([*numbers.values()]))


def _zones_and_pairs(touch: sparse.csr_array) -> sparse.csr_array:
    """(groups, zones) 0/1: single zones, and pairs with a common zone of the other zoning, by the
    zones of the other that each touches."""
    zones = np.flatnonzero(np.diff(touch.indptr))
    near = sparse.csr_array(sparse.triu(touch @ touch.T, 1))
    near.sort_indices()
    one, other = near.nonzero()
    singles, *ends = (incidence(own, touch.shape[0]).T for own in (zones, one, other))
    return sparse.csr_array(sparse.vstack([singles, sum(ends)]))


DIFFERENCING, AVERAGING = "differencing", "averaging"
THRESHOLDS = (3, 10)
"""Slivers with fewer persons than this are the targets."""
EXACT, WITHIN_ONE, PINNED, SHOWN_SMALL = (
    "counts of them found exactly",
    "found within one",
    "counts of them proven by bounds",
    "proven by bounds to be below",
)


def grade_differencing(
    slivers: Differences,
    zoning: Zonings,
    found: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    truth: np.ndarray,
    threshold: int,
) -> dict[str, float]:
    """Grade the attack on slivers with 1 to `threshold` - 1 persons: their number, the persons in
    them (each once), and the shares of these slivers whose rounded count is exactly right, or off
    by one person at most, or pinned to one number by bounds, or shown by bounds to be under the
    threshold, if there are any.

    `found` are estimates of the slivers' counts (`Differences.figures`), `bounds` proven bounds
    (`Differences.bounds`), `truth` the persons of every unit.
    """
    of_atoms = np.bincount(zoning.atom, truth, minlength=zoning.overlap.nnz).astype(np.int64)
    counts = np.asarray(slivers.atoms @ of_atoms)
    small = np.flatnonzero((counts > 0) & (counts < threshold))
    atoms = np.unique(slivers.atoms[small].indices)
    counts, (lower, upper) = counts[small], (np.asarray(end)[small] for end in bounds)
    error = np.abs(np.rint(np.asarray(found)[small]) - counts)
    holds = (lower <= counts) & (counts <= upper)
    claims = {
        EXACT: error == 0,
        WITHIN_ONE: error <= 1,
        PINNED: holds & (lower == upper),
        SHOWN_SMALL: holds & (upper < threshold),
    }
    graded = {"slivers": float(small.size), "persons in slivers": float(of_atoms[atoms].sum())}
    return graded | {what: float(claim.mean()) for what, claim in claims.items() if small.size}


COUNT_CLASSES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-9": (3, 9), "10+": (10, UNBOUNDED)}
"""Classes of true counts by name: the least and the greatest."""


def difference(release: Release) -> Iterator[Row]:
    """Figures of the slivers between levels that do not nest, by tables of one number.

    A sliver is the difference between one zone, or two neighbours together, of one level and zones
    of the other.
    """
    people = release.population.people
    for first, second in _pairs(release):
        zones = [_zones(table) for table in (first, second)]
        zoning = zonings(*zones)
        slivers = differences(zoning)
        told = [
            _published_figures(release, table, own)
            for table, own in zip((first, second), zones, strict=True)
        ]
        # Figures without a published zone, such as of land outside all places, are unknown.
        unknown = [np.isnan(value) for value, _ in told]
        used = abs(slivers.first) @ unknown[0] + abs(slivers.second) @ unknown[1]
        unused = slivers.among(np.asarray(used) == 0)
        found = unused.figures(*(np.nan_to_num(value) for value, _ in told))
        bounds = unused.bounds(*(ends for _, ends in told))
        counted = people.area[first.counted[people.cell]]
        persons = np.bincount(counted, minlength=len(first.places.entity))
        level = f"{first.places.level} and {second.places.level}"
        for threshold in THRESHOLDS:
            group = f"below {threshold} persons"
            graded = grade_differencing(unused, zoning, found, bounds, persons, threshold)
            # A guesser without the release, knowing only that a sliver is small, takes one of its
            # possible counts; nothing is proven.
            guesses = {EXACT: 1 / (threshold - 1), PINNED: 0.0, SHOWN_SMALL: 0.0}
            for what, value in graded.items():
                measure = f"{DIFFERENCING}: {what}"
                yield from figures(level, measure, group, value, guesses.get(what))


def _pairs(release: Release) -> Iterator[tuple[RequestedTable, RequestedTable]]:
    """Tables of one number at two levels of which neither has the other's entities whole."""
    tables = [table for table in release.population.tables if table.query.n_rows == 1]
    for first, second in combinations(tables, 2):
        if first.name != second.name:
            continue
        both = np.stack([_zones(first), _zones(second)])
        n_atoms = np.unique(both, axis=1).shape[1]
        if n_atoms > max(len(np.unique(zones)) for zones in both):
            yield first, second


def _published_figures(
    release: Release, table: RequestedTable, zones: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Published figures of zones, and their bounds; unknown for a last zone outside all."""
    own = release.published[table.key]
    sides = (own.value, np.nan), (own.low, 0.0), (own.high, np.inf)
    value, low, high = (np.append(s[:, 0], nothing)[: int(zones.max()) + 1] for s, nothing in sides)
    return value, (np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=np.inf))


def _zones(table: RequestedTable) -> np.ndarray:
    """The zone of every area; those in none are a zone of their own, the last."""
    entity = table.places.entity
    return np.where(entity >= 0, entity, len(table.places)).astype(np.int64)


def average(release: Release) -> Iterator[Row]:
    """Yield figures of the counts determined by all tables of an area together, by least squares.

    Every published figure has the same weight. Areas with a withheld figure are skipped.
    """
    published = release.values()
    is_whole = ~np.isnan(published).any(axis=1)
    if not is_whole.any():
        return
    level = release.smallest.level
    truth, own = release.true_values()[is_whole].astype(np.int64), published[is_whole]
    counts = np.maximum(np.rint(least_squares(release.system, own)), 0)
    for how, estimates in (("by all tables", counts), ("as published", np.rint(own))):
        measure = f"{AVERAGING}: counts found exactly, {how}"
        # Zeros last: most counts are zero, and an attacker has no interest in them.
        for group in (*list(COUNT_CLASSES)[1:], "0"):
            least, greatest = COUNT_CLASSES[group]
            inside = (truth >= least) & (truth <= greatest)
            if inside.any():
                share = float((estimates == truth)[inside].mean())
                # A guesser without the release takes every count for 0, as most are.
                guess = float(group == "0") if how == "by all tables" else None
                yield from figures(level, measure, group, share, guess)


def least_squares(system: TableSystem, published: np.ndarray) -> np.ndarray:
    """Least squares of all rows together from the published figures of each, `(blocks, rows)`.

    A A^+ y, the nearest figures that one histogram has: among linear unbiased estimates, those of
    least variance where the rows are independent and vary alike.
    """
    matrix = sparse.csr_array(system.matrix, dtype=float)
    gram = (matrix @ matrix.T).toarray()
    gain = gram @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    return np.asarray(published, dtype=float) @ gain.T
