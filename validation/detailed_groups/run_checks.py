"""All checks of a finished detailed-groups run, from its public files alone.

Nothing here uses the code that enumerated the groups, drew the noise, postprocessed or wrote the
release, and nothing here opens `confidential/`.

Which groups a run should show and with which counts follows from its measurements and its rules:
suppression, clipping, coterminous regions and the comparison of 'alone' with 'in any combination'
are applied here to dense arrays over the whole universe, with a threshold that is found in floating
point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..outcome import Failures, Outcome
from ..run_files import unusable_files_fail
from .measured import COMPLETE, LOSS, GroupCounts, group_numbers, read_level, read_measurements
from .privacy_loss import check_noise
from .release import check_release
from .tables import AGE_BINS, N_CELLS
from .universe import ExpectedLevel, ExpectedRun

UNIVERSE = "population groups"

CHECKS: Mapping[str, str] = {
    "measurements_are_complete": "every group of the universe was measured once, and no other",
    "measured_loss_is_the_budget": "of both stages of every group, and the variance of the noise",
    "tables_follow_the_first_stage": "every group has the table that its noisy total chose",
    "groups_shown_follow_the_rules": "suppression, coterminous regions, 'alone' groups",
    "totals_add_up": "every shown group has one total, the sum of its counts",
    "keys_are_complete": "every group with ages has each cell and marginal of its table once",
    "cells_are_those_measured": "or those of the region that lends its counts",
    "marginals_add_up": "to the cells of their sex",
    "margins_are_those_of_the_noise": "of every count in the tidy file, and its variance",
    "counts_are_not_negative": "where negative counts are not allowed",
    "files_agree": "text and Parquet files hold the same release and carry the stamp if due",
}
"""Each check's name, and what it found when it passed."""


FIRST_STAGE = "detailed_groups_stage_1"
COLUMNS = ["region_id", "iteration_code", "value", "variance", "plb"]


def run_checks(
    run_directory: Path, expected: ExpectedRun, release_directory: Path
) -> tuple[Outcome, ...]:
    """The outcome of each of `CHECKS`.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that a
    run passes only if everything was seen to be right.
    """
    failures = {name: Failures() for name in CHECKS}
    with unusable_files_fail(*failures.values()):
        counts = read_measurements(run_directory, expected, failures)
        check_first_stage(run_directory, expected, counts, failures)
        apply_rules(counts, expected)
        check_release(release_directory, expected, counts, failures)
    return tuple(failures[name].outcome(name, UNIVERSE, CHECKS[name]) for name in CHECKS)


def check_first_stage(
    run_directory: Path,
    expected: ExpectedRun,
    counts: GroupCounts,
    failures: Mapping[str, Failures],
) -> None:
    """Check the first stage's noisy totals against the tables that were measured afterwards.

    Completeness: every group that is not measured by a total only has one, and no other has. Loss:
    each cost gamma times the level's budget. Tables: a group received the table whose number is
    that of the thresholds which its noisy total reaches, and a group without one a total.
    """
    completeness, loss = failures[COMPLETE], failures[LOSS]
    table = np.zeros(expected.n_groups, dtype=np.int64)
    times = np.zeros(expected.n_groups, dtype=np.int64)
    due = np.zeros(expected.n_groups, dtype=np.int64)
    for level in expected.levels:
        due[level.rows] = np.tile(~level.total_only, len(level.regions))
        for batch in read_level(run_directory, FIRST_STAGE, level, expected, COLUMNS):
            group = group_numbers(batch, level, completeness)
            rows = np.ones(batch.num_rows, dtype=bool)
            check_noise(batch, rows, level, expected.stage_1_fraction, expected, loss)
            known = group >= 0
            value = batch.column("value").to_numpy()[known]
            np.add.at(times, group[known], 1)
            table[group[known]] = sum((value >= bound).astype(int) for bound in level.thresholds)
    completeness.add_each(
        times != due,
        lambda g: (
            f"{expected.describe(g)} has {times[g]} totals of the first stage instead of {due[g]}"
        ),
    )
    failures["tables_follow_the_first_stage"].add_each(
        counts.table != table,
        lambda g: (
            f"{expected.describe(g)} has table {counts.table[g]}, and its first stage "
            f"chose {table[g]}"
        ),
    )


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
    counts: GroupCounts, expected: ExpectedRun, iteration_level: int, donor_order: tuple[str, ...]
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
    counts: GroupCounts, level: ExpectedLevel, counterparts: Mapping[str, str], compares_cells: bool
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
