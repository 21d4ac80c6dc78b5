"""Privacy accounting of a group-sizes run, recomputed from its public files.

Nothing here uses the code that planned or measured. A level's sensitivity is derived again, in the
form of the changes that one person makes to its entries: a person of quantity q who joins a group
moves it across q sizes.

- `group_sizes`: one count falls by 1 and one rises by 1. A person who moves takes two groups out of
  their sizes and puts them into two others; most entries change by most if two of them coincide.
- `cumulative_group_sizes`: of the group's region, the counts up to the q sizes in between change.
- `chained_cumulative_group_sizes`: in between are q sizes of every region of the level.

The L1 norm of a change calibrates discrete Laplace noise to epsilon, its squared L2 norm discrete
Gaussian noise to rho. Levels with the same regions are one query, and may be measured as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..plan import (
    GAUSSIAN,
    LAPLACE,
    Measure,
    Plan,
    check_measured,
    check_plan,
    check_sums,
    make_guarantee,
    make_measure,
)
from ..run_files import UnusableRunFile, read_json, read_settings, read_whole

UNIVERSE = "groups"
HIERARCHY = Path("hierarchy")

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


def expectation(root: Path) -> Promise:
    """Compute the expectations on the run below `root`; raises UnusableRunFile.

    An unnamed mechanism is the one with the least noise: that of sizes where one person changes a
    size by more than one; in a single region the chain; else the cumulative one.
    """
    settings, (names, regions, _) = read_settings(root), hierarchy(root)
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
        groups = read_json(root, HIERARCHY / "plan.json")["groups"]
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
    settings, due = read_settings(root), expectation(root)
    stored = read_json(root, HIERARCHY / "plan.json")
    for name in due.__dataclass_fields__:
        if stored.get(name) != getattr(due, name):
            failures.add(f"the {name} in hierarchy/plan.json differs from the settings")
    privacy = settings["privacy"]
    rho, epsilon = (None if privacy["infinite"] else privacy.get(n) for n in ("rho", "epsilon"))
    kind = LAPLACE if rho is None else GAUSSIAN
    losses = [Fraction(own) for own in (rho, epsilon) if own is not None]
    guarantees = tuple(
        make_guarantee(UNIVERSE, privacy["neighbors"], loss, is_pure=rho is None, mechanism=kind)
        for loss in losses
    )
    loss = losses[0] if losses else None
    numbers = ("numbers of groups by region",) if due.exact_level else ()
    wanted = Plan(
        "group-sizes",
        privacy["dataset"],
        tuple(_measures(root, settings, due, loss, kind)),
        guarantees,
        guarantees,
        ("number of groups", *numbers, "regions"),
        frozenset(["settings.toml", "hierarchy/plan.json", "hierarchy/regions.parquet"]),
        (f"confidential/histograms/{UNIVERSE}.parquet",),
    )
    check_plan(root, wanted, settings, failures)
    check_sums(root, failures)


def check_measurements(root: Path, failures: Failures) -> None:
    """Each level's file holds its regions once, with the plan's vector, loss and variance."""
    names, regions, _ = hierarchy(root)
    by_level = {name: own.to_pylist() for name, own in zip(names, regions, strict=True)}
    check_measured(root, UNIVERSE, by_level, failures)


def hierarchy(root: Path) -> tuple[list[str], list[pa.Array], list[np.ndarray]]:
    """Names of the levels, their regions, and the position of each region's parent above."""
    table = read_whole(root, HIERARCHY / "regions.parquet")
    names = table["level"].unique().to_pylist()
    regions: list[pa.Array] = []
    parents = []
    for name in names:
        own = table.filter(pc.equal(table["level"], name))
        above = regions[-1] if regions else pa.array([""])
        parent = pc.fill_null(pc.index_in(own["parent"], value_set=above), -1).to_numpy()
        if (parent < 0).any() or len(own["region"].unique()) != len(own):
            raise UnusableRunFile(f"the regions of level {name} are not a level of a tree")
        regions.append(own["region"].combine_chunks())
        parents.append(parent)
    return names, regions, parents


def _measures(
    root: Path, settings: Mapping[str, Any], due: Promise, loss: Fraction | None, kind: str
) -> list[Measure]:
    """The measures of all levels with a share; the first of those with the same regions has all."""
    own, (names, regions, _) = settings["mechanism"], hierarchy(root)
    n_regions = {name: len(codes) for name, codes in zip(names, regions, strict=True)}
    first = {n: name for name, n in reversed(n_regions.items())}
    given = own.get("levels") or dict.fromkeys(first.values(), Fraction(1, len(first)))
    shares = dict.fromkeys(n_regions, Fraction(0))
    for name, share in given.items():
        shares[first[n_regions[name]]] += Fraction(share)
    if due.mechanism not in _VECTORS:
        raise UnusableRunFile(f"the mechanism {due.mechanism} is unknown")
    vector, power = _VECTORS[due.mechanism], 2 if kind == GAUSSIAN else 1
    return [
        make_measure(
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
