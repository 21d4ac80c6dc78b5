"""Privacy accounting of a group-sizes run, recomputed from its public files.

Nothing here uses the code that planned or measured. A level's sensitivity is derived again, in the
form of what one person changes: a person of quantity q who joins a group moves it across q sizes.

- `group_sizes`: one count falls by 1 and one rises by 1.
- `cumulative_group_sizes`: of the group's region, the counts up to the q sizes in between change.
- `chained_cumulative_group_sizes`: in between lie q sizes of every region of the level.

A person who moves between groups does this twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from spineflow.validation.outcome import Failures
from spineflow.validation.run_files import UnusableRunFile

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
class Promise:
    """What the settings promise. None: `mechanism` and `shares` by default, no noise for `epsilon`,
    `groups` as counted.
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


def read_plan(root: Path) -> dict[str, Any]:
    """The plan of a run; raises UnusableRunFile."""
    try:
        return json.loads((root / HIERARCHY / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UnusableRunFile("hierarchy/plan.json cannot be read") from None


def check_plan(root: Path, promise: Promise, failures: Failures) -> None:
    """The stored plan is what the settings promise, and its noise covers every sensitivity.

    To be called before noise is drawn too. Raises UnusableRunFile for a plan of another form.
    """
    plan = read_plan(root)
    regions = regions_by_level(root)
    try:
        _check_against(promise, plan, failures)
        _check_levels(promise, plan, {name: len(own) for name, own in regions.items()}, failures)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise UnusableRunFile("hierarchy/plan.json is not a plan") from None


def check_measurements(root: Path, failures: Failures) -> None:
    """Each level's file holds its regions once, with the plan's vector, loss and variance."""
    plan = read_plan(root)
    name = _VECTORS[plan["mechanism"]] + "_dpq"
    n_sizes = plan["largest_size"] - plan["smallest_size"] + 1
    regions = regions_by_level(root)
    for level in plan["levels"]:
        where = level["level"]
        table = pq.read_table(
            root / MEASUREMENTS / where / "dpqueries" / "00000.parquet",
            columns=["geocode", "query_name", "value", "variance", "plb"],
        )
        if table["geocode"].to_pylist() != regions[where].to_pylist():
            failures.add(f"the measurements of {where} are not one of each region")
        if table["query_name"].unique().to_pylist() != [name]:
            failures.add(f"level {where} was measured by other queries than {name}")
        if not pc.all(pc.equal(pc.list_value_length(table["value"]), n_sizes)).as_py():
            failures.add(f"a measurement of {where} does not have {n_sizes} values")
        spent, variance = "inf", 0.0
        if level["scale"] is not None:
            spent = str(Fraction(plan["epsilon"]) * Fraction(level["share"]))
            variance = _laplace_variance(Fraction(level["scale"]))
        if table["plb"].unique().to_pylist() != [spent]:
            failures.add(f"the measurements of {where} do not cost {spent}")
        if not np.allclose(table["variance"].to_numpy(), variance, rtol=1e-9, atol=0):
            failures.add(f"the measurements of {where} do not have the variance of their scale")


def regions_by_level(root: Path) -> dict[str, pa.ChunkedArray]:
    """The regions of every level, root first; raises UnusableRunFile."""
    try:
        table = pq.read_table(root / HIERARCHY / "regions.parquet", columns=["level", "region"])
    except (OSError, pa.ArrowException):
        raise UnusableRunFile("hierarchy/regions.parquet cannot be read") from None
    return {
        name: table.filter(pc.equal(table["level"], name))["region"]
        for name in table["level"].unique().to_pylist()
    }


def _check_against(promise: Promise, plan: dict[str, Any], failures: Failures) -> None:
    promised = {
        "epsilon": None if promise.epsilon is None else str(promise.epsilon),
        "bounded": promise.bounded,
        "quantity": promise.quantity,
        "calibration": "published" if promise.published else "proven",
        "smallest_size": promise.smallest_size,
        "largest_size": promise.largest_size,
    }
    if promise.mechanism is not None:
        promised["mechanism"] = promise.mechanism
    if promise.groups is not None:
        promised["groups"] = promise.groups
    for key, value in promised.items():
        if plan[key] != value:
            failures.add(f"the plan's {key} is {plan[key]}, not {value}")
    if plan["mechanism"] not in _VECTORS:
        failures.add(f"the plan's mechanism {plan['mechanism']} is unknown")


def _check_levels(
    promise: Promise, plan: dict[str, Any], n_regions: Mapping[str, int], failures: Failures
) -> None:
    levels = plan["levels"]
    if [(level["level"], level["n_regions"]) for level in levels] != list(n_regions.items()):
        failures.add("the plan's levels are not those of the hierarchy")
    shares = {level["level"]: Fraction(level["share"]) for level in levels}
    if sum(shares.values()) != 1 or min(shares.values()) <= 0:
        failures.add("the shares of the levels are not positive and add to 1")
    if promise.shares is not None and shares != dict(promise.shares):
        failures.add("the shares of the levels are not those of the settings")
    for level in levels:
        if (level["scale"] is None) != (promise.epsilon is None):
            failures.add(f"level {level['level']} has a scale, or lacks one, against the settings")
        elif level["scale"] is not None:
            loss = _largest_change(promise, plan, level["n_regions"]) / Fraction(level["scale"])
            if loss > promise.epsilon * shares[level["level"]] and not promise.published:
                failures.add(f"the noise of {level['level']} does not cover its sensitivity")


def _largest_change(promise: Promise, plan: dict[str, Any], n_regions: int) -> int:
    """L1 norm of the largest change of a level's vector between neighbours."""
    change = {
        "group_sizes": 1 + 1,
        "cumulative_group_sizes": promise.quantity,
        "chained_cumulative_group_sizes": promise.quantity * n_regions,
    }[_VECTORS[plan["mechanism"]]]
    return change + change if promise.bounded else change


def _laplace_variance(scale: Fraction) -> float:
    """Variance of P(x) proportional to exp(-|x| / scale) on the integers: 2 q / (1 - q)^2."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2
