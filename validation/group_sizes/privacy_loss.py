"""Privacy accounting of a group-sizes run, recomputed from its public files.

Nothing here uses the code that planned or measured. A level's sensitivity is derived again, in the
form of the changes that one person makes to its entries: a person of quantity q who joins a group
moves it across q sizes.

- `group_sizes`: one count falls by 1 and one rises by 1. A person who moves takes two groups out of
  their sizes and puts them into two others; most entries change by most if two of them coincide.
- `cumulative_group_sizes`: of the group's region, the counts up to the q sizes in between change.
- `chained_cumulative_group_sizes`: in between lie q sizes of every region of the level.

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

from ..noise import gaussian_variance, laplace_variance
from ..outcome import Failures
from ..run_files import UnusableRunFile, check_answers, read_json, read_whole

HIERARCHY = Path("hierarchy")
MEASUREMENTS = Path("measurements") / "groups"

_VECTORS = {
    "hierarchical": "group_sizes",
    "hierarchical_dp": "group_sizes",
    "topdown": "group_sizes",
    "cumulative": "cumulative_group_sizes",
    "cumulative_dp": "cumulative_group_sizes",
    "chain_dp": "chained_cumulative_group_sizes",
}


@dataclass(frozen=True)
class ExpectedGroupSizes:
    """What the settings promise. None: `mechanism` and `shares` by default, `epsilon` or `rho` not
    spent, `groups` as counted, `exact_level` by default.
    """

    epsilon: Fraction | None
    bounded: bool
    quantity: int
    published: bool
    mechanism: str | None
    shares: Mapping[str, Fraction] | None
    smallest_size: int
    largest_size: int
    groups: int | None
    rho: Fraction | None = None
    is_top_coded: bool = False
    exact_level: str | None = None

    @property
    def loss(self) -> Fraction | None:
        """What is spent: rho or epsilon, None without noise."""
        return self.epsilon if self.rho is None else self.rho


def read_plan(root: Path) -> dict[str, Any]:
    """The plan of a run; raises UnusableRunFile."""
    return read_json(root, HIERARCHY / "plan.json")


def check_plan(root: Path, expected: ExpectedGroupSizes, failures: Failures) -> None:
    """The stored plan is what the settings promise, and its noise covers every sensitivity.

    To be called before noise is drawn too. Raises UnusableRunFile for a plan of another form.
    """
    plan = read_plan(root)
    names, regions, _ = hierarchy(root)
    try:
        _check_against(expected, plan, failures)
        _check_levels(expected, plan, dict(zip(names, map(len, regions), strict=True)), failures)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise UnusableRunFile("hierarchy/plan.json is not a plan") from None


def check_measurements(root: Path, failures: Failures) -> None:
    """Each level's file holds its regions once, with the plan's vector, loss and variance."""
    plan = read_plan(root)
    name = _VECTORS[plan["mechanism"]] + "_dpq"
    n_sizes = plan["largest_size"] - plan["smallest_size"] + 1
    names, regions, _ = hierarchy(root)
    for level in plan["levels"]:
        if not Fraction(level["share"]):
            continue
        loss, variance = "inf", 0.0
        if level["scale"] is not None:
            loss = str(Fraction(plan["epsilon"]) * Fraction(level["share"]))
            variance = laplace_variance(Fraction(level["scale"]))
        elif level.get("sigma_squared") is not None:
            loss = str(Fraction(plan["rho"]) * Fraction(level["share"]))
            variance = gaussian_variance(Fraction(level["sigma_squared"]))
        file = root / MEASUREMENTS / level["level"] / "dpqueries" / "00000.parquet"
        own = regions[names.index(level["level"])].to_pylist()
        check_answers(file, own, {name: (n_sizes, loss, variance)}, failures)


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


def _check_against(expected: ExpectedGroupSizes, plan: dict[str, Any], failures: Failures) -> None:
    expected_plan = {
        "epsilon": None if expected.epsilon is None else str(expected.epsilon),
        "bounded": expected.bounded,
        "quantity": expected.quantity,
        "calibration": "published" if expected.published else "proven",
        "smallest_size": expected.smallest_size,
        "largest_size": expected.largest_size,
    }
    if "rho" in plan:
        expected_plan["rho"] = None if expected.rho is None else str(expected.rho)
        expected_plan["is_top_coded"] = expected.is_top_coded
    elif expected.rho is not None:
        failures.add("the plan spends no rho, against the settings")
    if expected.mechanism is not None:
        expected_plan["mechanism"] = expected.mechanism
    if expected.groups is not None:
        expected_plan["groups"] = expected.groups
    for key, value in expected_plan.items():
        if plan.get(key) != value:
            failures.add(f"the plan's {key} is {plan[key]}, not {value}")
    if expected.exact_level is not None and "exact_level" in plan:
        sizes = {level["level"]: level["n_regions"] for level in plan["levels"]}
        exact_level = expected.exact_level if sizes.get(expected.exact_level) != 1 else None
        if plan["exact_level"] != exact_level:
            failures.add("the plan's exact_level is not that of the settings")
    if plan["mechanism"] not in _VECTORS:
        failures.add(f"the plan's mechanism {plan['mechanism']} is unknown")


def _check_levels(
    expected: ExpectedGroupSizes,
    plan: dict[str, Any],
    n_regions: Mapping[str, int],
    failures: Failures,
) -> None:
    levels = plan["levels"]
    if [(level["level"], level["n_regions"]) for level in levels] != list(n_regions.items()):
        failures.add("the plan's levels are not those of the hierarchy")
    shares = {level["level"]: Fraction(level["share"]) for level in levels}
    if sum(shares.values()) != 1 or min(shares.values()) < 0:
        failures.add("the shares of the levels are not at least 0 and add to 1")
    if expected.shares is not None and _by_regions(shares, n_regions) != _by_regions(
        expected.shares, n_regions
    ):
        failures.add("the shares of the levels are not those of the settings")
    for level in levels:
        name, share = level["level"], shares[level["level"]]
        scale, sigma_squared = level["scale"], level.get("sigma_squared")
        is_noisy = scale is not None or sigma_squared is not None
        allowed = expected.loss * share if expected.loss is not None and share > 0 else None
        if is_noisy != (allowed is not None):
            failures.add(f"level {name} has noise, or lacks it, against the settings")
        elif allowed is not None and not expected.published:
            changes = _largest_changes(expected, plan, level["n_regions"])
            if expected.rho is None:
                loss = sum(changes) / Fraction(scale)
            else:
                loss = sum(change**2 for change in changes) / (2 * Fraction(sigma_squared))
            if loss > allowed:
                failures.add(f"the noise of {name} does not cover its sensitivity")


def _by_regions(
    shares: Mapping[str, Fraction], n_regions: Mapping[str, int]
) -> dict[int, Fraction]:
    """Shares by number of regions: levels of a tree with as many regions have the same ones."""
    summed: dict[int, Fraction] = {}
    for name, share in shares.items():
        summed[n_regions[name]] = summed.get(n_regions[name], Fraction(0)) + share
    return summed


def _largest_changes(
    expected: ExpectedGroupSizes, plan: dict[str, Any], n_regions: int
) -> list[int]:
    """By how much each entry of a level's vector changes, where neighbours differ most.

    Of group sizes, a person who moves changes most in L1 where the four entries are different,
    and most in L2 where two of them coincide.
    """
    vector = _VECTORS[plan["mechanism"]]
    if vector == "group_sizes":
        if not expected.bounded:
            return [1, 1]
        return [1, 1, 1, 1] if expected.rho is None else [2, 1, 1]
    entries = expected.quantity * (n_regions if vector.startswith("chained") else 1)
    return [1] * entries * (2 if expected.bounded else 1)
