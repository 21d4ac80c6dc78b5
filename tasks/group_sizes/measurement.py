"""The charged plan of a group-sizes run, and the noisy vectors of its levels.

`tasks.group_sizes.plan` defines each measured vector, and its sensitivity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ..ledger.accounting import BOUNDED, UNBOUNDED
from ..products.budget import Cost
from ..products.measurement import publish_measures
from ..products.plan import ExactFact, Plan
from ..products.statement import Statement
from ..runs.directory import RunDirectory
from .costs import exact_curve, needed_split, universe_plan
from .ingest.read import public_plan, read_plan, read_regions, true_counts
from .plan import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
    UNIVERSE,
    plan_file,
    regions_file,
)
from .plan import Plan as MeasuredLevels
from .settings import GroupSizesSettings


def plan_of(settings: GroupSizesSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and the public hierarchy."""
    measured = public_plan(settings) if run is None else read_plan(run)
    question = "whether this one is in a group or in none"
    if measured.bounded:
        question = "whether this one is in one group rather than in another"
    cost = Cost(
        replace(universe_plan(measured), curve=exact_curve(measured, is_bounded=True)),
        exact_curve(measured),
        BOUNDED if measured.bounded else UNBOUNDED,
        further={
            "mechanism": measured.mechanism,
            "vector": measured.vector,
            "noise": measured.noise,
            "calibration": measured.calibration,
        },
    )
    plan = Plan.of(
        settings,
        [cost],
        statement_of(measured),
        exact_of(measured),
        question=question,
        split=partial(needed_split, measured),
    )
    if run is None:
        return plan
    return plan.decided_by(run, [regions_file(run), plan_file(run)], [run.histogram(UNIVERSE)])


def statement_of(plan: MeasuredLevels) -> Statement:
    """The guarantee for one person, who joins, leaves or moves between groups."""
    by = "" if plan.quantity == 1 else f", whose size changes by up to {plan.quantity:,}"
    change = f"one person joins or leaves a group{by}"
    if plan.bounded:
        change = f"one person moves from a group to another{by and f'{by} in each'}"
    has_empty = plan.smallest_size == 0
    alone = "Groups neither appear nor vanish."
    if has_empty:
        alone = "Empty groups are counted, so that a person who is a group alone is protected too."
    exists = (
        "The existence of a group is not protected, nor is the existence of a person who is a "
        "group alone."
    )
    return Statement(
        None,
        ("Protected is every person: of which size the person's group is.",),
        (f"The guarantee compares two tables that differ in this: {change}. {alone}",),
        unprotected=() if has_empty else (exists,),
    )


def exact_of(plan: MeasuredLevels) -> Iterator[ExactFact]:
    """The declared facts that the release rests on."""
    yield ExactFact("number of groups", f"there are {plan.groups:,} in all, released without noise")
    if plan.exact_level is not None:
        what = f"how many there are in every {plan.exact_level}, released without noise"
        yield ExactFact("numbers of groups by region", what)
    yield ExactFact("regions", "which regions there are")


def measure_level(run: RunDirectory, settings: GroupSizesSettings, level_name: str) -> None:
    """Measure and publish one level; raises as `single_draw`."""
    plan, hierarchy = read_plan(run), read_regions(run)
    depth = hierarchy.names.index(level_name)
    regions = hierarchy.levels[depth].codes
    values = {plan.vector: true_vector(plan.vector, true_counts(run, hierarchy, plan)[depth])}
    publish_measures(run, settings, universe_plan(plan), level_name, regions, values)


def true_vector(vector: str, counts: np.ndarray) -> np.ndarray:
    """A vector at one level, (n, n_sizes), from the counts of its regions and sizes, (n, n_sizes).

    >>> counts = np.array([[2, 1], [0, 3]])
    >>> true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, counts).tolist()
    [[2, 3], [2, 6]]
    """
    if vector == GROUP_SIZES:
        return counts
    if vector == CUMULATIVE_GROUP_SIZES:
        return np.cumsum(counts, axis=1)
    if vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        chain = np.cumsum(counts.T.reshape(-1))
        return np.ascontiguousarray(chain.reshape(counts.shape[::-1]).T)
    raise ValueError(f"unknown vector {vector!r}")
