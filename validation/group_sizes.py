"""Checks of a group-sizes run from its settings and public files.

Accounting, and the conditions of [GroupSizes2021]: consistency (children add to their parents),
validity (non-negative integers, one for each size of each region) and faithfulness (every level
adds to the number of groups). Nothing here uses the code that planned, measured or estimated, and
nothing opens `confidential/`.

A level's sensitivity is derived again, in the form of the changes that one person makes to its
entries: a person of quantity q who joins a group moves it across q sizes.

- `group_sizes`: one count falls by 1 and one rises by 1. A person who moves takes two groups out of
  their sizes and puts them into two others; most entries change by most if two of them coincide.
- `cumulative_group_sizes`: of the group's region, the counts up to the q sizes in between change.
- `chained_cumulative_group_sizes`: in between are q sizes of every region of the level.

The L1 norm of a change calibrates discrete Laplace noise to epsilon, its squared L2 norm discrete
Gaussian noise to rho. Levels with the same regions are one query, and may be measured as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import plan, run_files
from .outcome import Failures, Outcome
from .run_files import UnusableRunFile, unusable_files_fail

UNIVERSE = "groups"
HIERARCHY = Path("hierarchy")

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

_VECTORS = {
    "hierarchical": "group_sizes",
    "hierarchical_dp": "group_sizes",
    "topdown": "group_sizes",
    "cumulative": "cumulative_group_sizes",
    "cumulative_dp": "cumulative_group_sizes",
    "chain_dp": "chained_cumulative_group_sizes",
}
_PUBLISHED = {"group_sizes": 2}
"""Sensitivities to which a paper calibrates its noise; of the other vectors 1."""


@dataclass(frozen=True)
class Promise:
    """Expectations on a run from settings and regions, except for its noise.

    exact_level : the level whose regions have public numbers of groups; None if only the total is.
    groups : the public number of groups.
    """

    mechanism: str
    smallest_size: int
    largest_size: int
    is_top_coded: bool
    exact_level: str | None
    groups: int


class Hierarchy(NamedTuple):
    """Names of the levels, their regions, and the position of each region's parent above."""

    names: list[str]
    regions: list[pa.Array]
    parents: list[np.ndarray]

    @classmethod
    def read(cls, root: Path) -> Hierarchy:
        """The hierarchy of a run; raises UnusableRunFile for one that is no tree."""
        table = run_files.read_table(root / HIERARCHY / "regions.parquet")
        found = cls(table["level"].unique().to_pylist(), [], [])
        for name in found.names:
            own = table.filter(pc.equal(table["level"], name))
            above = found.regions[-1] if found.regions else pa.array([""])
            parent = run_files.positions(own["parent"], above.cast(pa.string()))
            if (parent < 0).any() or len(own["region"].unique()) != len(own):
                raise UnusableRunFile(f"the regions of level {name} are not a level of a tree")
            found.regions.append(own["region"].combine_chunks())
            found.parents.append(parent)
        return found


def expectation(root: Path, hierarchy: Hierarchy) -> Promise:
    """Compute the expectations on the run below `root`; raises UnusableRunFile.

    An unnamed mechanism is the one with the least noise: that of sizes where one person changes a
    size by more than one; in a single region the chain; else the cumulative one.
    """
    settings, (names, regions, _) = run_files.read_settings(root), hierarchy
    own, invariants = settings["mechanism"], settings["invariants"]
    is_census = "persons" in settings["input"]
    named, level, groups = own.get("name"), invariants.get("level"), invariants["groups"]
    if level is None and is_census and named in (None, "hierarchical_dp", "cumulative_dp"):
        level = names[-1]
    if level is not None and level not in names:
        raise UnusableRunFile("the exact level of the settings is not a level of the hierarchy")
    chosen = "chain_dp" if len(regions[-1]) == 1 else "cumulative_dp"
    if isinstance(groups, bool):
        # As many as the input has, which is public.
        groups = run_files.read_json(root, HIERARCHY / "plan.json")["groups"]
    return Promise(
        named or ("hierarchical_dp" if own["largest_quantity"] > 1 else chosen),
        own.get("smallest_size", int(not is_census)),
        own["largest_size"],
        own["top_coded"],
        None if level is None or len(regions[names.index(level)]) == 1 else level,
        groups,
    )


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers every sensitivity.

    To be called before noise is drawn. Raises UnusableRunFile for a plan of another form.
    """
    settings, hierarchy = run_files.read_settings(root), Hierarchy.read(root)
    due = expectation(root, hierarchy)
    stored = run_files.read_json(root, HIERARCHY / "plan.json")
    for name in due.__dataclass_fields__:
        if stored.get(name) != getattr(due, name):
            failures.add(f"the {name} in hierarchy/plan.json differs from the settings")
    privacy = settings["privacy"]
    rho, epsilon = (None if privacy["infinite"] else privacy.get(n) for n in ("rho", "epsilon"))
    kind = plan.LAPLACE if rho is None else plan.GAUSSIAN
    losses = [Fraction(own) for own in (rho, epsilon) if own is not None]
    guarantees = tuple(
        plan.Guarantee(UNIVERSE, privacy["neighbors"], loss, kind) for loss in losses
    )
    loss = losses[0] if losses else None
    numbers = ("numbers of groups by region",) if due.exact_level else ()
    wanted = plan.Plan(
        "group-sizes",
        tuple(_measures(hierarchy, settings, due, loss, kind)),
        guarantees,
        guarantees,
        ("number of groups", *numbers, "regions"),
        frozenset(["settings.toml", "hierarchy/plan.json", "hierarchy/regions.parquet"]),
        (f"confidential/histograms/{UNIVERSE}.parquet",),
    )
    plan.check_plan(root, wanted, settings, failures)
    plan.check_sums(root, failures)


def _measures(
    hierarchy: Hierarchy,
    settings: Mapping[str, Any],
    due: Promise,
    loss: Fraction | None,
    kind: str,
) -> list[plan.Measure]:
    """The measures of all levels with a share; the first of those with the same regions has all."""
    own, names = settings["mechanism"], hierarchy.names
    n_regions = dict(zip(names, map(len, hierarchy.regions), strict=True))
    first = {n: name for name, n in reversed(n_regions.items())}
    given = own.get("levels") or dict.fromkeys(first.values(), Fraction(1, len(first)))
    shares = dict.fromkeys(n_regions, Fraction(0))
    for name, share in given.items():
        shares[first[n_regions[name]]] += Fraction(share)
    if due.mechanism not in _VECTORS:
        raise UnusableRunFile(f"the mechanism {due.mechanism} is unknown")
    vector, power = _VECTORS[due.mechanism], 2 if kind == plan.GAUSSIAN else 1
    return [
        plan.Measure(
            UNIVERSE,
            name,
            vector,
            areas=n_regions[name],
            answers=n_regions[name] * (due.largest_size - due.smallest_size + 1),
            share=share,
            loss=None if loss is None else loss * share,
            moved=_largest_change(settings, vector, n_regions[name], power),
            mechanism=kind,
            part=name,
        )
        for name, share in shares.items()
        if share
    ]


def _largest_change(settings: Mapping[str, Any], vector: str, n_regions: int, power: int) -> int:
    """Largest sum of powers of one person's changes in the entries of a level's vector.

    For group sizes, a person who moves changes most in L1 where the four entries are different, and
    most in L2 where two of them coincide.
    """
    if settings["mechanism"]["calibration"] == "published":
        return _PUBLISHED.get(vector, 1)
    is_bounded = settings["privacy"]["neighbors"] == "bounded"
    if vector == "group_sizes" and is_bounded:
        return max(sum(n**power for n in changes) for changes in ([1, 1, 1, 1], [2, 1, 1]))
    entries = 2 if vector == "group_sizes" else settings["mechanism"]["largest_quantity"]
    return entries * (n_regions if vector.startswith("chained") else 1) * (1 + is_bounded)


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check the run below `root` whose tables are in `release`; an outcome for each of `CHECKS`.

    For the relaxed baselines, violations of the sums are counted in the outcome's words and do not
    fail it. A file that is missing or of another layout fails the checks that need it.
    """
    failures, details = {name: Failures() for name in CHECKS}, dict(CHECKS)
    privacy, consistency, validity, faithfulness = failures.values()
    with unusable_files_fail(privacy):
        check_privacy(root, privacy)
        names, regions, _ = Hierarchy.read(root)
        by_level = {name: own.to_pylist() for name, own in zip(names, regions, strict=True)}
        plan.check_measured(root, UNIVERSE, by_level, privacy)
    with unusable_files_fail(consistency, validity, faithfulness):
        is_private = plan.not_private_reason(run_files.read_settings(root)) is None
        sizes, totals = (
            run_files.checked_table(release, name, is_private=is_private, failures=validity)
            for name in ("group_sizes", "group_totals")
        )
        hierarchy = Hierarchy.read(root)
        due = expectation(root, hierarchy)
        levels = released_counts(sizes, hierarchy, due)
        if min(int(counts.min()) for counts in levels) < 0:
            validity.add("a count is negative")
        check_totals(totals, hierarchy, levels, faithfulness)
        check_exact_groups(root, hierarchy, due, levels, faithfulness)
        of_levels = np.array([counts.sum() != due.groups for counts in levels])
        of_parents = np.concatenate([[False][:0], *differing_sums(hierarchy, levels)])
        for check, wrong, subject, words in (
            ("consistency", of_parents, "counts", "are not the sum of those below"),
            ("faithfulness", of_levels, "levels", "do not add to the number of groups"),
        ):
            if due.mechanism in RELAXED:
                number = f"{wrong.sum()} of {wrong.size} {subject}"
                details[check] = f"not promised by this mechanism: {number} {words}"
            else:
                failures[check].add_each(wrong, f"{subject} {words}")
    return tuple(failures[name].outcome(name, UNIVERSE, details[name]) for name in CHECKS)


def released_counts(table: pa.Table, hierarchy: Hierarchy, due: Promise) -> list[np.ndarray]:
    """The released counts (n, n_sizes) of every level, regions in the order of the hierarchy.

    Raises UnusableRunFile unless every size of every region appears exactly once.
    """
    if table.schema.names != ["level", "region", "size", "count"]:
        raise UnusableRunFile("group_sizes.parquet does not have the columns of its layout")
    n_sizes, levels, n_rows = due.largest_size - due.smallest_size + 1, [], 0
    for name, own in zip(hierarchy.names, hierarchy.regions, strict=True):
        rows = table.filter(pc.equal(table["level"], name))
        n_rows += len(rows)
        region = run_files.positions(rows["region"], own.cast(pa.string()))
        size = rows["size"].to_numpy() - due.smallest_size
        cell, known = region * n_sizes + size, (region >= 0) & (size >= 0) & (size < n_sizes)
        if not known.all() or (np.bincount(cell, minlength=len(own) * n_sizes) != 1).any():
            raise UnusableRunFile(f"level {name} does not have every size of every region once")
        counts = np.empty(len(own) * n_sizes, dtype=np.int64)
        counts[cell] = rows["count"].to_numpy()
        levels.append(counts.reshape(len(own), n_sizes))
    if n_rows != len(table):
        raise UnusableRunFile("group_sizes.parquet has levels that the hierarchy does not have")
    return levels


def differing_sums(hierarchy: Hierarchy, levels: list[np.ndarray]) -> Iterator[np.ndarray]:
    """By level, mask of the pairs of a region and a size whose count is not the sum of those
    below."""
    for above, below, parent in zip(levels, levels[1:], hierarchy.parents[1:], strict=False):
        sums = np.zeros_like(above)
        np.add.at(sums, parent, below)
        yield (sums != above).ravel()


def check_totals(
    table: pa.Table, hierarchy: Hierarchy, levels: list[np.ndarray], failures: Failures
) -> None:
    """The group totals are the sums of the counts over sizes."""
    if table.schema.names != ["level", "region", "groups"]:
        raise UnusableRunFile("group_totals.parquet does not have the columns of its layout")
    due = [
        (name, region, groups)
        for name, own, counts in zip(hierarchy.names, hierarchy.regions, levels, strict=True)
        for region, groups in zip(own.to_pylist(), counts.sum(axis=1).tolist(), strict=True)
    ]
    found = zip(*(column.to_pylist() for column in table.columns), strict=True)
    if Counter(found) != Counter(due):
        failures.add("the group totals are not the sums over sizes")


def check_exact_groups(
    root: Path, hierarchy: Hierarchy, due: Promise, levels: list[np.ndarray], failures: Failures
) -> None:
    """The regions of the exact level have the numbers of groups that were made public."""
    if due.exact_level is None:
        return
    depth = hierarchy.names.index(due.exact_level)
    table = run_files.read_table(root / HIERARCHY / "exact_groups.parquet")
    public = dict(zip(table["region"].to_pylist(), table["groups"].to_pylist(), strict=True))
    groups = levels[depth].sum(axis=1).tolist()
    found = dict(zip(hierarchy.regions[depth].to_pylist(), groups, strict=True))
    wrong = {region for region, _ in public.items() ^ found.items()}
    if wrong:
        failures.add(f"regions of {due.exact_level} do not have their public numbers", len(wrong))
    if sum(public.values()) != due.groups:
        failures.add("the public numbers of groups do not add to the number of groups")
