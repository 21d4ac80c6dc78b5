"""Which groups a run should show and with which counts, from its measurements and its rules.

Suppression, clipping, coterminous regions and the comparison of 'alone' with 'in any combination'
are applied here to dense arrays over the whole universe, apart from the code that made the
release, and with a threshold that is found in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from .measured import GroupCounts
from .tables import AGE_BINS, N_CELLS
from .universe import ExpectedLevel, ExpectedRun


def apply_rules(counts: GroupCounts, expected: ExpectedRun) -> None:
    """Turn measured counts into those that should be released, in place."""
    for level in expected.levels:
        _suppress(counts, level, expected)
    if not expected.allow_negative_counts:
        np.maximum(counts.cells, 0, out=counts.cells)
    if expected.donor_order is not None:
        for iteration_level in sorted({level.level for level in expected.levels}):
            _copy_donors(counts, expected, iteration_level, expected.donor_order)
    if expected.counterparts is not None:
        for level in expected.levels:
            _suppress_alone(counts, level, expected.counterparts, expected.compares_cells)


def float_threshold(loss: Fraction, stability: int, chance: Fraction, *, is_pure: bool) -> int:
    """The smallest k with P(X <= k) >= chance, for noise of P(x) ~ exp(-(loss / s) |x|^power)."""
    rate, power = float(loss) / stability, 1 if is_pure else 2
    reach = int((60 / rate) ** (1 / power)) + 2
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-rate * np.abs(values).astype(float) ** power)
    due = float(chance) * math.fsum(weights)
    # From the nearer end, where partial sums are accurate.
    if chance <= Fraction(1, 2):
        return int(values[np.searchsorted(np.cumsum(weights), due)])
    above = np.cumsum(weights[::-1])[::-1] - weights
    return int(values[np.argmax(above <= float(1 - chance) * math.fsum(weights))])


def _suppress(counts: GroupCounts, level: ExpectedLevel, expected: ExpectedRun) -> None:
    chance = expected.zero_suppression_chance
    if not chance or level.is_state:
        return
    if level.budget is None:
        threshold = 0
    else:
        second_stage = level.budget * (1 - expected.stage_1_fraction)
        threshold = float_threshold(second_stage, level.stability, chance, is_pure=expected.is_pure)
    total_only = np.tile(level.total_only, len(level.regions))
    totals = counts.cells[counts.first_cell[level.rows]]
    small = (counts.table[level.rows] == 0) & ~total_only & (totals <= threshold)
    counts.is_shown[level.rows] = ~small


def _copy_donors(
    counts: GroupCounts,
    expected: ExpectedRun,
    iteration_level: int,
    donor_order: tuple[str, ...],
) -> None:
    """For every set of regions and every iteration, the first shown group's counts for all."""
    levels = [level for level in expected.levels if level.level == iteration_level]
    levels.sort(key=lambda level: donor_order.index(level.region_type))
    codes = sorted({code for level in levels for code in level.iterations})
    place = {code: i for i, code in enumerate(codes)}
    members: dict[int, list[tuple[ExpectedLevel, int]]] = {}
    for level in levels:
        known = expected.coterminous.get(level.region_type, {})
        for region, name in enumerate(level.regions):
            if name in known:
                members.setdefault(known[name], []).append((level, region))
    where = {level: np.array([place[code] for code in level.iterations]) for level in levels}
    for regions in members.values():
        donor = np.full(len(codes), -1)
        for level, region in regions:
            groups = _groups_of(level, region)
            free = counts.is_shown[groups] & (donor[where[level]] < 0)
            donor[where[level][free]] = groups[free]
        for level, region in regions:
            groups = _groups_of(level, region)
            source = donor[where[level]]
            groups, source = groups[source >= 0], source[source >= 0]
            counts.table[groups] = counts.table[source]
            counts.first_cell[groups] = counts.first_cell[source]
            counts.source[groups] = counts.source[source]
            counts.is_shown[groups] = True


def _groups_of(level: ExpectedLevel, region: int) -> np.ndarray:
    return level.first + region * len(level.iterations) + np.arange(len(level.iterations))


def _suppress_alone(
    counts: GroupCounts,
    level: ExpectedLevel,
    counterparts: Mapping[str, str],
    compares_cells: bool,
) -> None:
    place = {code: i for i, code in enumerate(level.iterations)}
    pairs = [(place[a], place[b]) for a, b in counterparts.items() if a in place and b in place]
    if not pairs or not level.regions:
        return
    alone, combined = np.array(pairs).T
    shape = len(level.regions), len(level.iterations)
    was_shown = counts.is_shown[level.rows].reshape(shape)
    totals = counts.totals[level.rows].reshape(shape)
    both = was_shown[:, alone] & was_shown[:, combined]
    exceeds = both & (totals[:, alone] > totals[:, combined])
    if compares_cells:
        number = level.first + np.arange(level.n).reshape(shape)
        for region, pair in np.argwhere(both & ~exceeds):
            sides = number[region, alone[pair]], number[region, combined[pair]]
            exceeds[region, pair] = _has_larger_cell(counts, *sides)
    is_shown = was_shown.copy()
    is_shown[:, alone] &= ~exceeds
    counts.is_shown[level.rows] = is_shown.ravel()


def _has_larger_cell(counts: GroupCounts, alone: int, combined: int) -> bool:
    """Whether a group has more than another in a cell of the coarser of their tables."""
    coarser = min(counts.table[alone], counts.table[combined])
    if coarser == 0:
        return False
    bins = AGE_BINS[int(coarser)]
    sums = []
    for group in (alone, combined):
        table = int(counts.table[group])
        first = counts.first_cell[group]
        cells = counts.cells[first : first + N_CELLS[table]].reshape(2, -1)
        starts = [AGE_BINS[table].index(age) for age in bins]
        sums.append(np.add.reduceat(cells, starts, axis=1))
    return bool((sums[0] > sums[1]).any())
