"""Checks of a finished group-sizes run from its public files: the conditions of [GroupSizes2021].

Privacy accounting, consistency (children add to their parents), validity (non-negative integers,
one for each size of each region) and faithfulness (every level adds to the number of groups).
Nothing here uses the code that measured or estimated, and nothing opens `confidential/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..outcome import Failures, Outcome
from ..plan import not_private_reason
from ..run_files import UnusableRunFile, check_text, read_settings, read_whole, unusable_files_fail
from .privacy_loss import (
    HIERARCHY,
    UNIVERSE,
    check_measurements,
    check_privacy,
    expectation,
    hierarchy,
)

CHECKS: Mapping[str, str] = {
    "privacy_accounting": "shares add to one, noise covers what a person can change at every level",
    "consistency": "the regions below every region add to it in every size",
    "validity": "one non-negative integer for every size of every region, Parquet and text alike",
    "faithfulness": "every level adds to the number of groups, and so do the group totals; regions "
    "whose numbers of groups are declared public have exactly these",
}
"""Each check's name, and its text when it passed."""

RELAXED = ("hierarchical", "cumulative")
"""Mechanisms that promise neither consistency nor faithfulness."""


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check the run below `root` whose tables are in `release`; an outcome for each of `CHECKS`.

    For the relaxed baselines, violations of the sums are counted in the outcome's words and do not
    fail it. A file that is missing or of another layout fails the checks that need it.
    """
    failures = {name: Failures() for name in CHECKS}
    privacy, validity = failures["privacy_accounting"], failures["validity"]
    consistency, faithfulness = failures["consistency"], failures["faithfulness"]
    with unusable_files_fail(privacy):
        check_privacy(root, privacy)
        check_measurements(root, privacy)
    details = dict(CHECKS)
    with unusable_files_fail(consistency, validity, faithfulness):
        is_private = not_private_reason(read_settings(root)) is None
        levels = released_counts(root, release)
        for name in ("group_sizes", "group_totals"):
            check_text(release, name, is_private=is_private, failures=validity)
        if min(int(counts.min()) for counts in levels) < 0:
            validity.add("a count is negative")
        check_totals(root, release, levels, faithfulness)
        check_exact_groups(root, levels, faithfulness)
        of_parents, of_levels = find_violations(root, levels)
        if expectation(root).mechanism not in RELAXED:
            consistency.add_each(of_parents, "children do not add to their parent")
            faithfulness.add_each(of_levels, "a level does not add to the number of groups")
        else:
            details["consistency"] = (
                f"not promised by this mechanism: {of_parents.sum()} of {of_parents.size} counts "
                "are not the sum of those below"
            )
            details["faithfulness"] = (
                f"not promised by this mechanism: {of_levels.sum()} of {of_levels.size} levels do "
                "not add to the number of groups"
            )
    return tuple(failures[name].outcome(name, UNIVERSE, details[name]) for name in CHECKS)


def released_counts(root: Path, release: Path) -> list[np.ndarray]:
    """The released counts (n, n_sizes) of every level, regions in the order of the hierarchy.

    Raises UnusableRunFile unless every size of every region appears exactly once.
    """
    due, (names, regions, _) = expectation(root), hierarchy(root)
    smallest, largest = due.smallest_size, due.largest_size
    n_sizes = largest - smallest + 1
    table = pq.read_table(release / "group_sizes.parquet", read_dictionary=["level", "region"])
    if table.schema.names != ["level", "region", "size", "count"]:
        raise UnusableRunFile("group_sizes.parquet does not have the columns of its layout")
    levels = []
    n_rows = 0
    for name, own in zip(names, regions, strict=True):
        rows = table.filter(pc.equal(table["level"], name))
        n_rows += len(rows)
        region = pc.fill_null(pc.index_in(rows["region"], value_set=own), -1).to_numpy()
        size = rows["size"].to_numpy()
        cell = region.astype(np.int64) * n_sizes + size - smallest
        known = (region >= 0) & (size >= smallest) & (size <= largest)
        if not known.all() or (np.bincount(cell, minlength=len(own) * n_sizes) != 1).any():
            raise UnusableRunFile(f"level {name} does not have every size of every region once")
        counts = np.empty(len(own) * n_sizes, dtype=np.int64)
        counts[cell] = rows["count"].to_numpy()
        levels.append(counts.reshape(len(own), n_sizes))
    if n_rows != len(table):
        raise UnusableRunFile("group_sizes.parquet has levels that the hierarchy does not have")
    return levels


def find_violations(root: Path, levels: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Where counts (n, n_sizes) of every level break the sums: a mask of the pairs of region and
    size that have regions below, and one of the levels.
    """
    groups = expectation(root).groups
    *_, parents = hierarchy(root)
    wrong = [np.zeros(0, dtype=bool)]
    for above, below, parent in zip(levels, levels[1:], parents[1:], strict=False):
        sums = np.zeros_like(above)
        np.add.at(sums, parent, below)
        wrong.append((sums != above).ravel())
    return np.concatenate(wrong), np.array([level.sum() != groups for level in levels])


def check_totals(root: Path, release: Path, levels: list[np.ndarray], failures: Failures) -> None:
    """The group totals are the sums of the counts over sizes."""
    names, regions, _ = hierarchy(root)
    totals = pq.read_table(release / "group_totals.parquet")
    if totals.schema.names != ["level", "region", "groups"]:
        raise UnusableRunFile("group_totals.parquet does not have the columns of its layout")
    expected = {
        (name, region): int(groups)
        for name, own, counts in zip(names, regions, levels, strict=True)
        for region, groups in zip(own.to_pylist(), counts.sum(axis=1), strict=True)
    }
    rows = totals.to_pylist()
    if len(rows) != len(expected) or any(
        expected.get((row["level"], row["region"])) != row["groups"] for row in rows
    ):
        failures.add("the group totals are not the sums over sizes")


def check_exact_groups(root: Path, levels: list[np.ndarray], failures: Failures) -> None:
    """The regions of the exact level have the numbers of groups that were made public."""
    due, (names, regions, _) = expectation(root), hierarchy(root)
    if due.exact_level is None:
        return
    depth = names.index(due.exact_level)
    table = read_whole(root, HIERARCHY / "exact_groups.parquet")
    public = dict(zip(table["region"].to_pylist(), table["groups"].to_pylist(), strict=True))
    groups = levels[depth].sum(axis=1).tolist()
    found = dict(zip(regions[depth].to_pylist(), groups, strict=True))
    wrong = {region for region, _ in public.items() ^ found.items()}
    if wrong:
        failures.add(f"regions of {names[depth]} do not have their public numbers", len(wrong))
    if sum(public.values()) != due.groups:
        failures.add("the public numbers of groups do not add to the number of groups")
