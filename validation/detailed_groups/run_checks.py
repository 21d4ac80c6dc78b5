"""All checks of a finished run of detailed groups or households, from its public files alone.

Nothing here uses the code that enumerated the groups, drew the noise, postprocessed or wrote the
release, and nothing here opens `confidential/`.

Which groups a run should show and with which counts follows from its measurements and its rules:
suppression, clipping, coterminous regions and the comparison of 'alone' with 'in any combination'
are applied here to dense arrays over the whole universe, with a threshold that is found in floating
point.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..outcome import Failures, Outcome
from ..run_files import unusable_files_fail
from .measured import COMPLETE, LOSS, TABLES, GroupCounts, check_measurements
from .privacy_loss import check_plan_of
from .released import (
    COUNTS,
    FILES,
    MARGINS,
    ROWS,
    SHOWN,
    SIGNS,
    check_texts,
    check_tidy,
    threshold_of,
)
from .tables import PERSONS
from .universe import STATE_TYPES, Level, Promise, promises

PRIVACY = "privacy_accounting"
CHECKS: Mapping[str, str] = {
    PRIVACY: "the plan is that of the settings, and its noise covers what a person can change",
    COMPLETE: "every group that is due was measured once, and no other",
    LOSS: "of all stages of every group, and the variance of the noise",
    TABLES: "every group has the table that its noisy total of persons chose",
    SHOWN: "no group but those that measurements, suppression and coterminous regions leave",
    ROWS: "every shown group has each row of its table once, and no other",
    COUNTS: "or their sums, or those of the region that lends its counts",
    MARGINS: "of every count in the tidy file, and its variance",
    SIGNS: "where negative counts are not allowed",
    FILES: "text and Parquet files hold the same release and carry the stamp if due",
}
"""Each check's name, and its text when it passed."""


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """The outcome of each of `CHECKS` of the run below `root` whose release is in `release`.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that a
    run passes only if everything was seen to be right.
    """
    failures = {name: Failures() for name in CHECKS}
    of_release = [own for name, own in failures.items() if name != PRIVACY]
    universe = PERSONS.universe
    with unusable_files_fail(*failures.values()):
        promised = promises(root)
        if promised[0].tabulation is not PERSONS:
            universe = "households"
        with unusable_files_fail(failures[PRIVACY]):
            check_plan_of(root, promised, failures[PRIVACY])
        with unusable_files_fail(*of_release):
            counted = []
            for promise in promised:
                counts = check_measurements(root, promise, failures)
                apply_rules(counts, promise)
                check_texts(release, promise, counts, failures)
                counted.append((promise, counts))
            check_tidy(release, counted, failures)
    return tuple(failures[name].outcome(name, universe, CHECKS[name]) for name in CHECKS)


def apply_rules(counts: GroupCounts, promise: Promise) -> None:
    """Turn measured counts into the counts that should be released, in place."""
    for level in promise.levels:
        _suppress(counts, level, promise)
    if not promise.allow_negative_counts:
        np.maximum(counts.cells, 0, out=counts.cells)
    if promise.donor_order is not None:
        for number in sorted({level.level for level in promise.levels}):
            _copy_donors(counts, promise, number, promise.donor_order)
    if promise.counterparts is not None:
        for level in promise.levels:
            _suppress_alone(counts, level, promise)


def _suppress(counts: GroupCounts, level: Level, promise: Promise) -> None:
    chance = promise.zero_suppression_chance
    if not chance or level.region_type in STATE_TYPES:
        return
    threshold = threshold_of(level.noise(level.loss(is_total_only=False)), chance)
    totals = counts.cells[counts.first_cell[level.rows]]
    small = (counts.table[level.rows] == 0) & ~level.is_total_only & (totals <= threshold)
    counts.is_shown[level.rows] &= ~small


def _copy_donors(
    counts: GroupCounts, promise: Promise, iteration_level: int, donor_order: tuple[str, ...]
) -> None:
    """For every set of regions and every iteration, the first shown group's counts for all."""
    levels = [level for level in promise.levels if level.level == iteration_level]
    levels.sort(key=lambda level: donor_order.index(level.region_type))
    codes = sorted({code for level in levels for code in level.iterations})
    place = {code: i for i, code in enumerate(codes)}
    members: dict[int, list[tuple[Level, int]]] = {}
    for level in levels:
        known = promise.coterminous.get(level.region_type, {})
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


def _groups_of(level: Level, region: int) -> np.ndarray:
    return level.first + region * len(level.iterations) + np.arange(len(level.iterations))


def _suppress_alone(counts: GroupCounts, level: Level, promise: Promise) -> None:
    place = {code: i for i, code in enumerate(level.iterations)}
    pairs = [
        (place[a], place[b])
        for a, b in (promise.counterparts or {}).items()
        if a in place and b in place
    ]
    if not pairs or not level.regions:
        return
    alone, combined = np.array(pairs).T
    shape = len(level.regions), len(level.iterations)
    groups = level.first + np.arange(level.n)
    was_shown = counts.is_shown[level.rows].reshape(shape)
    ends = promise.tabulation.n_cells[counts.table[groups]]
    totals = counts.sums(groups, np.zeros_like(groups), ends).reshape(shape)
    both = was_shown[:, alone] & was_shown[:, combined]
    exceeds = both & (totals[:, alone] > totals[:, combined])
    is_shown = was_shown.copy()
    is_shown[:, alone] &= ~exceeds
    counts.is_shown[level.rows] = is_shown.ravel()
