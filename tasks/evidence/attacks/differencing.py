"""Attacks that put published figures together: differences of zonings, and averages over tables.

Where some zones of one zoning cover, or are within, zones of another, the difference of their
published figures is a figure of the sliver between them [Differencing1998]. Zones that overlap are
joined in a graph; connected groups of zones of one zoning are compared with the smallest cover and
with the largest part of zones of the other.

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

from ..tables import RequestedTable
from .release import Release, Row
from .systems import UNBOUNDED, TableSystem


@dataclass(frozen=True)
class Zonings:
    """Two zonings of the same units (blocks, grid cells): the zone of every unit in each.

    An atom is a set of units in the same zone of both. `overlap` has the number of the atom, from 1
    on, by first and second zone; `atom` is the number of every unit's atom, from 0 on.
    """

    overlap: sparse.csr_array
    atom: np.ndarray

    @property
    def n_atoms(self) -> int:
        return self.overlap.nnz


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

    @property
    def n_slivers(self) -> int:
        return self.atoms.shape[0]

    def among(self, chosen: np.ndarray) -> Differences:
        """Some of the slivers, by mask or number."""
        places = np.arange(self.n_slivers)[chosen]
        return Differences(self.first[places], self.second[places], self.atoms[places])

    def figures(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Differences of figures `(zones, ...)` that were published of the zones of each."""
        flat = [np.reshape(part, (len(part), -1)) for part in (first, second)]
        found = np.asarray(self.first @ flat[0] + self.second @ flat[1])
        return found.reshape(self.n_slivers, *np.shape(first)[1:])

    def bounds(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the slivers from lower and upper bounds of the zones' figures; none below 0."""
        lower = upper = np.zeros(self.n_slivers)
        for signs, (low, high) in ((self.first, first), (self.second, second)):
            added, taken = signs.maximum(0), (-signs).maximum(0)
            lower = lower + added @ low - taken @ high
            upper = upper + added @ high - taken @ low
        return np.maximum(lower, 0), upper


def differences(zoning: Zonings, *, largest_group: int = 2) -> Differences:
    """All slivers between groups of zones and their covers and parts, each of them once.

    Groups are connected sets of up to `largest_group` zones of one zoning, neighbours being zones
    that share a zone of the other. The cover of a group is every zone of the other zoning that it
    touches, its part every zone of the other that is within it. With 1, groups are single zones.
    """
    rows: dict[bytes, tuple[dict[int, int], dict[int, int], np.ndarray]] = {}
    for swapped in (False, True):
        overlap = sparse.csr_array(zoning.overlap.T) if swapped else zoning.overlap
        for group, others, sign, atoms in _slivers(overlap, largest_group):
            signs = dict.fromkeys(group, sign), dict.fromkeys(others, -sign)
            key = atoms.tobytes()
            rows.setdefault(key, (*(signs[::-1] if swapped else signs), atoms))
    shape = zoning.overlap.shape
    return Differences(
        _signs([first for first, _, _ in rows.values()], shape[0]),
        _signs([second for _, second, _ in rows.values()], shape[1]),
        _signs([dict.fromkeys(atoms.tolist(), 1) for _, _, atoms in rows.values()], zoning.n_atoms),
    )


def _signs(rows: list[dict[int, int]], n_columns: int) -> sparse.csr_array:
    """A matrix with a row of signs for every dictionary."""
    row = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
    column = np.array([key for part in rows for key in part], dtype=np.int64)
    sign = np.array([value for part in rows for value in part.values()], dtype=np.int64)
    return sparse.csr_array((sign, (row, column)), shape=(len(rows), n_columns))


def _slivers(
    overlap: sparse.csr_array, largest_group: int
) -> Iterator[tuple[list[int], list[int], int, np.ndarray]]:
    """Groups of zones, zones of the other side, the group's sign, and the atoms between them."""
    other = sparse.csc_array(overlap)
    (touched, by_zone), (touching, by_other) = (
        [np.split(part, by.indptr[1:-1]) for part in (by.indices, by.data - 1)]
        for by in (overlap, other)
    )
    for group in _groups(touched, touching, largest_group):
        members = set(group)
        cover = sorted({int(zone) for member in group for zone in touched[member]})
        part = [zone for zone in cover if members.issuperset(touching[zone].tolist())]
        own = np.unique(np.concatenate([by_zone[member] for member in group]))
        covered = np.unique(np.concatenate([by_other[zone] for zone in cover]))
        if len(covered) > len(own):
            yield group, cover, -1, np.setdiff1d(covered, own)
        if part:
            within = np.unique(np.concatenate([by_other[zone] for zone in part]))
            if len(within) < len(own):
                yield group, part, 1, np.setdiff1d(own, within)


def _groups(
    touched: list[np.ndarray], touching: list[np.ndarray], largest: int
) -> Iterator[list[int]]:
    """Connected sets of zones, each once, in order of size."""
    level: set[tuple[int, ...]] = {(zone,) for zone in range(len(touched)) if len(touched[zone])}
    for size in range(1, largest + 1):
        for group in sorted(level):
            yield list(group)
        if size < largest:
            level = {
                tuple(sorted({*group, int(neighbour)}))
                for group in level
                for member in group
                for zone in touched[member]
                for neighbour in touching[zone]
                if int(neighbour) not in group
            }


@dataclass(frozen=True)
class Exposure:
    """Slivers under a threshold, persons in them (each once), and shares of these slivers: rounded
    count exactly right, off by one person at most, pinned to one number by bounds, or shown by
    bounds to be under the threshold. NaN if there are none.
    """

    slivers: int
    persons: int
    exact: float
    within_one: float
    pinned: float
    shown_small: float


def grade_differencing(
    slivers: Differences,
    zoning: Zonings,
    found: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    truth: np.ndarray,
    threshold: int,
) -> Exposure:
    """Grade the attack on slivers with 1 to `threshold` - 1 persons.

    `found` are estimates of the slivers' counts (`Differences.figures`), `bounds` proven bounds
    (`Differences.bounds`), `truth` the persons of every unit.
    """
    of_atoms = np.bincount(zoning.atom, truth, minlength=zoning.n_atoms).astype(np.int64)
    counts = np.asarray(slivers.atoms @ of_atoms)
    small = np.flatnonzero((counts > 0) & (counts < threshold))
    atoms = np.unique(slivers.atoms[small].indices)
    counts, (lower, upper) = counts[small], (np.asarray(end)[small] for end in bounds)
    error = np.abs(np.rint(np.asarray(found)[small]) - counts)
    holds = (lower <= counts) & (counts <= upper)
    claims = error == 0, error <= 1, holds & (lower == upper), holds & (upper < threshold)
    shares = (float(claim.mean()) if small.size else np.nan for claim in claims)
    return Exposure(small.size, int(of_atoms[atoms].sum()), *shares)


DIFFERENCING, AVERAGING = "differencing", "averaging"
THRESHOLDS = (3, 10)
"""Slivers with fewer persons than this are the targets."""


COUNT_CLASSES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-9": (3, 9), "10+": (10, UNBOUNDED)}
"""Classes of true counts by name: the least and the greatest."""


def difference(release: Release) -> Iterator[Row]:
    """Figures of the slivers between levels that do not nest, by tables of one number.

    A sliver is the difference between one zone, or some neighbours together, of one level and zones
    of the other.
    """
    for first, second in _pairs(release):
        zones = [_zones(table) for table in (first, second)]
        zoning = zonings(*zones)
        slivers = differences(zoning, largest_group=release.comparison.zones)
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
        persons = _persons(release, first)
        level = f"{first.places.level} and {second.places.level}"
        for threshold in THRESHOLDS:
            group = f"below {threshold} persons"
            graded = grade_differencing(unused, zoning, found, bounds, persons, threshold)
            yield level, f"{DIFFERENCING}: slivers", group, float(graded.slivers)
            yield level, f"{DIFFERENCING}: persons in slivers", group, float(graded.persons)
            # A guesser without the release, knowing only that a sliver is small, takes one of its
            # possible counts; nothing is proven.
            for shown, share, guess in (
                ("counts of them found exactly", graded.exact, 1 / (threshold - 1)),
                ("found within one", graded.within_one, None),
                ("counts of them proven by bounds", graded.pinned, 0.0),
                ("proven by bounds to be below", graded.shown_small, 0.0),
            ):
                if graded.slivers:
                    yield level, f"{DIFFERENCING}: {shown}", group, share
                    if guess is not None:
                        yield level, f"baseline of {DIFFERENCING}: {shown}", group, guess


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


def _persons(release: Release, table: RequestedTable) -> np.ndarray:
    people = release.population.people
    counted = table.counted[people.cell]
    return np.bincount(people.area[counted], minlength=len(table.places.entity))


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
    by_class = {
        "by all tables": recovery_by_class(counts, truth),
        "as published": recovery_by_class(np.rint(own), truth),
    }
    for how, classes in by_class.items():
        # Zeros last: most counts are zero, and an attacker has no interest in them.
        for group, (n, share) in sorted(classes.items(), key=lambda item: item[0] == "0"):
            if n:
                yield level, f"{AVERAGING}: counts found exactly, {how}", group, share
    for group, (n, _) in by_class["as published"].items():
        if n:
            # A guesser without the release takes every count for 0, as most are.
            measure = f"baseline of {AVERAGING}: counts found exactly, by all tables"
            yield level, measure, group, 1.0 if group == "0" else 0.0


def least_squares(system: TableSystem, published: np.ndarray) -> np.ndarray:
    """Least squares of all rows together from the published figures of each, `(blocks, rows)`.

    A A^+ y, the nearest figures that one histogram has: among linear unbiased estimates, those of
    least variance where the rows are independent and vary alike.
    """
    matrix = sparse.csr_array(system.matrix, dtype=float)
    gram = (matrix @ matrix.T).toarray()
    gain = gram @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    return np.asarray(published, dtype=float) @ gain.T


def recovery_by_class(estimates: np.ndarray, truth: np.ndarray) -> dict[str, tuple[int, float]]:
    """Cells and the share of them recovered exactly, by the class of their true count.

    A NaN is not recovered; the share of a class without cells is NaN.
    """
    shares = {}
    right = np.asarray(estimates) == truth
    for name, (least, greatest) in COUNT_CLASSES.items():
        inside = (truth >= least) & (truth <= greatest)
        shares[name] = (int(inside.sum()), float(right[inside].mean()) if inside.any() else np.nan)
    return shares
