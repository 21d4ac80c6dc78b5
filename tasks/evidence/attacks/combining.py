"""Attacks that put published figures together: differences of zonings, and averages over tables.

Noise is averaged away over all published figures that share cells. A total that was perturbed on
its own is also the sum of the perturbed parts of every table that splits it [Averaging2020]. Least
squares makes the best of all of them at once; rounded, it is the exact count once enough tables are
out: (2 z)^2 V independent answers of variance V, which for 95 % are 15.4 V.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from scipy import sparse

from ..workload.tables import AskedTable
from .differencing import differences, exposed, zonings
from .release import Release, Row
from .systems import UNBOUNDED, TableSystem

DIFFERENCING, AVERAGING = "differencing", "averaging"
THRESHOLDS = (3, 10)
"""Slivers with fewer persons than this are looked for."""


COUNT_CLASSES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-9": (3, 9), "10+": (10, UNBOUNDED)}
"""Classes of true counts by name: the least and the greatest."""


def difference(release: Release) -> Iterator[Row]:
    """Figures of the slivers between levels that do not nest, by tables of one number.

    A sliver is what zones of one level, one or some neighbours together, have more or less than
    zones of the other.
    """
    for first, second in _pairs(release):
        zones = [_zones(table) for table in (first, second)]
        zoning = zonings(*zones)
        slivers = differences(zoning, largest_group=release.comparison.zones)
        told = [_told(release, first, zones[0]), _told(release, second, zones[1])]
        # What is published of no zone, such as of land outside all places, is not known.
        unknown = [np.isnan(value) for value, _ in told]
        used = abs(slivers.first) @ unknown[0] + abs(slivers.second) @ unknown[1]
        unused = slivers.among(np.asarray(used) == 0)
        found = unused.figures(*(np.nan_to_num(value) for value, _ in told))
        bounds = unused.bounds(*(ends for _, ends in told))
        persons = _persons(release, first)
        level = f"{first.places.level} and {second.places.level}"
        for threshold in THRESHOLDS:
            group = f"below {threshold} persons"
            graded = exposed(unused, zoning, found, bounds, persons, threshold)
            yield level, f"{DIFFERENCING}: slivers", group, float(graded.slivers)
            yield level, f"{DIFFERENCING}: persons in slivers", group, float(graded.persons)
            if graded.slivers:
                yield level, f"{DIFFERENCING}: counts of them found exactly", group, graded.exact
                yield level, f"{DIFFERENCING}: found within one", group, graded.within_one
                # Who knows only that a sliver is small guesses one of its possible counts.
                guess = 1 / (threshold - 1)
                measure = f"baseline of {DIFFERENCING}: counts of them found exactly"
                yield level, measure, group, guess
                for shown, share in (
                    ("counts of them proven by bounds", graded.pinned),
                    ("proven by bounds to be below", graded.shown_small),
                ):
                    yield level, f"{DIFFERENCING}: {shown}", group, share
                    # Without the release nothing is proven.
                    yield level, f"baseline of {DIFFERENCING}: {shown}", group, 0.0


def _pairs(release: Release) -> Iterator[tuple[AskedTable, AskedTable]]:
    """Tables of one number at two levels of which neither has the other's entities whole."""
    tables = [table for table in release.population.tables if table.query.n_rows == 1]
    for first, second in combinations(tables, 2):
        if first.name != second.name:
            continue
        both = np.stack([_zones(first), _zones(second)])
        n_atoms = np.unique(both, axis=1).shape[1]
        if n_atoms > max(len(np.unique(zones)) for zones in both):
            yield first, second


def _told(
    release: Release, table: AskedTable, zones: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """What a release says of zones, and its bounds; of a last zone outside all it says nothing."""
    own = release.published[table.key]
    sides = (own.value, np.nan), (own.low, 0.0), (own.high, np.inf)
    value, low, high = (np.append(s[:, 0], nothing)[: int(zones.max()) + 1] for s, nothing in sides)
    return value, (np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=np.inf))


def _zones(table: AskedTable) -> np.ndarray:
    """The zone of every area; those in none are a zone of their own, the last."""
    entity = table.places.entity
    return np.where(entity >= 0, entity, len(table.places)).astype(np.int64)


def _persons(release: Release, table: AskedTable) -> np.ndarray:
    people = release.population.people
    counted = table.counted[people.cell]
    return np.bincount(people.area[counted], minlength=len(table.places.entity))


def average(release: Release) -> Iterator[Row]:
    """Figures of the counts that all tables of an area together tell, by least squares.

    Every published figure counts alike. Areas with a withheld figure are left out.
    """
    published = release.values()
    is_whole = ~np.isnan(published).any(axis=1)
    if not is_whole.any():
        return
    level = release.smallest.level
    truth, own = release.true_values()[is_whole].astype(np.int64), published[is_whole]
    counts = np.maximum(np.rint(least_squares(release.system, own)), 0)
    by_class = {
        "by all tables": recovered(counts, truth),
        "as published": recovered(np.rint(own), truth),
    }
    for how, classes in by_class.items():
        # Zeros last: most counts are, and nobody has to look for them.
        for group, (n, share) in sorted(classes.items(), key=lambda item: item[0] == "0"):
            if n:
                yield level, f"{AVERAGING}: counts found exactly, {how}", group, share
    for group, (n, _) in by_class["as published"].items():
        if n:
            # Who has seen nothing takes every count for 0, as most are.
            measure = f"baseline of {AVERAGING}: counts found exactly, by all tables"
            yield level, measure, group, 1.0 if group == "0" else 0.0


def least_squares(system: TableSystem, published: np.ndarray) -> np.ndarray:
    """Least squares of all rows together from what is published of each, `(blocks, rows)`.

    A A^+ y, the nearest figures that one histogram has: of all that are linear and without bias,
    those of least variance where the rows are independent and vary alike.
    """
    matrix = sparse.csr_array(system.matrix, dtype=float)
    gram = (matrix @ matrix.T).toarray()
    gain = gram @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    return np.asarray(published, dtype=float) @ gain.T


def recovered(estimates: np.ndarray, truth: np.ndarray) -> dict[str, tuple[int, float]]:
    """Cells and the share of them recovered exactly, by the class of their true count.

    A NaN is not recovered; the share of a class without cells is NaN.
    """
    shares = {}
    right = np.asarray(estimates) == truth
    for name, (least, greatest) in COUNT_CLASSES.items():
        inside = (truth >= least) & (truth <= greatest)
        shares[name] = (int(inside.sum()), float(right[inside].mean()) if inside.any() else np.nan)
    return shares
