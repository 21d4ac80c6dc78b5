"""The charged plan of a group-sizes run, its cost, curve and design, and its levels' noisy vectors.

`plan` defines each measured vector, and its sensitivity. All levels' noise is fixed by the plan
before anything is drawn, so that the worst pairs of the levels compose (`ledger.exact_curve`). The
largest change by one person at a level follows from the vector (`plan` derives it; q is the most by
which a person changes a size, R the regions):

- *Cumulative vectors* have entries that move by one: q at most, or q R along the chain, and twice
  as many where a person moves between groups far apart in size. Fewer entries lose no more.
- *Group sizes, one person more or less*: the group leaves one entry and joins another, so that two
  counts move by one.
- *Group sizes, a person who moves between groups*: four counts move by one; or, where both groups
  are in one region and have the same size before, or after, one moves by two and two by one.
  Entries that both leave and are joined stay, and lose nothing. Both groups are in one region of
  every level down to some level, and in different ones below it: as many alternatives as there are
  measured levels, and one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from ..ledger.accounting import BOUNDED, UNBOUNDED
from ..ledger.exact_curve import Counts, PrivacyCurve, count_moves, known_curve
from ..ledger.plan import Measure
from ..products.budget import Cost
from ..products.measurement import publish_measures
from ..products.plan import ExactFact, Plan, Statement
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.settings import Refuse, without_section
from ..solvers.level_design import (
    DesignedLevels,
    LevelDesign,
    LevelErrors,
    RegularTree,
    design_levels,
)
from .ingest.read import public_plan, read_plan, read_regions, true_counts
from .plan import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
    PUBLISHED,
    TOPDOWN,
    UNIVERSE,
    plan_file,
    regions_file,
)
from .plan import Plan as MeasuredLevels
from .settings import GroupSizesSettings


def level_errors(plan: MeasuredLevels) -> LevelErrors:
    """Errors of measured entries as functions of the levels' losses, by distinct level.

    Levels are combined on a tree of the mean fan-outs. Under pure differential privacy, and along
    the chain, which is no tree, every level counts alone.
    """
    levels = distinct_levels(plan)
    names = {depth: level.level for depth, level in enumerate(levels)}
    moved = enumerate(level.moved or 0 for level in levels)
    if plan.rho is None:
        return LevelErrors(names, {n: 2.0 * own**2 for n, own in moved}, None, 2, "epsilon")
    tree = None
    if plan.vector != CHAINED_CUMULATIVE_GROUP_SIZES:
        fanouts = tuple((low.areas or 1) / (up.areas or 1) for up, low in pairwise(levels))
        tree = RegularTree(fanouts, is_root_exact=False, is_combined=plan.mechanism != TOPDOWN)
    return LevelErrors(names, {n: own / 2 for n, own in moved}, tree, 1, "rho")


def distinct_levels(plan: MeasuredLevels) -> list[Measure]:
    """The levels whose regions no level above has, as `level_errors` numbers them."""
    repeated = plan.repeated
    return [level for level in plan.levels if level.level not in repeated]


JOINED = {1: 2}
"""Counts of group sizes that one person more or less moves, by how far."""

APART, TOGETHER = {1: 4}, {2: 1, 1: 2}
"""Counts of group sizes that a person moves from a group to another one: of another region or size,
or of the same region and size."""


def exact_curve(plan: MeasuredLevels, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The curve between the plan's neighbours, or of a person who moves between groups, which the
    ledger counts, if `is_bounded`; None where nothing is guaranteed, or not known.

    A person who joins or leaves a group moves fewer counts than one who moves between two, whose
    curve covers this too.
    """
    if plan.universe.guarantee is None:
        return None
    return known_curve({}, [list(_alternatives(plan, is_bounded or plan.bounded))])


def _alternatives(plan: MeasuredLevels, is_bounded: bool) -> Iterator[Counts]:
    """The counts of all levels that a change moves, for every kind of change, of a person who moves
    between groups if `is_bounded`; a plan of such neighbours has no other changes.
    """
    levels = plan.universe.measured
    noises = [level.noise for level in levels]
    if plan.vector != GROUP_SIZES:
        times = 2 if is_bounded and not plan.bounded else 1
        yield count_moves((own.noise, {1: times * (own.moved or 0)}) for own in levels)
    elif not is_bounded:
        yield count_moves((noise, JOINED) for noise in noises)
    else:
        for apart in range(len(levels) + 1):
            moves = [TOGETHER] * (len(levels) - apart) + [APART] * apart
            yield count_moves(zip(noises, moves, strict=True))


def plan_of(settings: GroupSizesSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and the public hierarchy."""
    measured = public_plan(settings) if run is None else read_plan(run)
    question = "whether this one is in a group or in none"
    if measured.bounded:
        question = "whether this one is in one group rather than in another"
    cost = Cost(
        replace(measured.universe, curve=exact_curve(measured, is_bounded=True)),
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
    publish_measures(run, settings, plan.universe, level_name, regions, values)


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


class GroupSizesDesignSettings(GroupSizesSettings):
    """A settings file of group-sizes with a section [design]."""

    ASIDE = frozenset()

    design: LevelDesign

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse what the product and the design cannot have, and the published calibration."""
        super().refuse_invalid(refuse)
        self.design.refuse_invalid(self.privacy.infinite, refuse)
        if self.mechanism.calibration == PUBLISHED:
            refuse("a design needs mechanism.calibration = 'proven'")


def optimize_shares(
    settings: GroupSizesDesignSettings,
) -> tuple[DesignedLevels, GroupSizesSettings]:
    """The best shares for a design, and the settings with them; reads the public hierarchy alone.

    Raises InputRefused as `design_levels`, and for a hierarchy with a single level to measure.
    """
    own = without_section(GroupSizesSettings, settings)
    plan = public_plan(own)
    errors = level_errors(plan)
    if len(errors.names) == 1 or plan.loss is None:
        raise InputRefused(
            "design: there is nothing to share, because all levels have the same regions; ask "
            "'spineflow budget group-sizes --target LEVEL=MARGIN' for the budget of one."
        )
    now = dict(enumerate(level.share for level in distinct_levels(plan)))
    found = design_levels(errors, settings.design, plan.loss, now)
    shares = {level.level: Fraction(0) for level in plan.levels}
    shares |= {errors.names[depth]: share for depth, share in found.shares.items()}
    update: dict[str, Any] = {
        "mechanism": own.mechanism.model_copy(update={"levels": shares, "name": plan.mechanism}),
        "privacy": own.privacy.model_copy(update={errors.symbol: found.total}),
    }
    return found, own.model_copy(update=update)
