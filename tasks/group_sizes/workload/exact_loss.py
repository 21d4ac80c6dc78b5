"""The exact privacy curve of group sizes: which counts of a level one person moves, and how far.

All levels' noise is fixed by the plan before anything is drawn, so that the worst pairs of the
levels compose (`ledger.exact_curve`). What one person changes at a level follows from the vector
(`mechanisms` derives it; q is the most by which a person changes a size, R the regions):

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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...ledger.exact_curve import Counts, PrivacyCurve, known_curve
from ...ledger.loss_laws import ChangedCount
from ...noise.margins import distribution_of
from .costs import universe_plan
from .mechanisms import GROUP_SIZES
from .plan import Plan

JOINED = {1: 2}
"""Counts of group sizes that one person more or less moves, by how far."""

APART, TOGETHER = {1: 4}, {2: 1, 1: 2}
"""Counts of group sizes that a person moves from a group to another one: of another region or size,
or of the same region and size."""


def exact_curve(plan: Plan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The curve between the plan's neighbours, or of a person who moves between groups, which the
    ledger counts, if `is_bounded`; None where nothing is guaranteed, or not known.

    Who joins or leaves a group moves fewer counts than one who moves between two, whose curve
    covers this too.

    >>> from fractions import Fraction
    >>> from spineflow.tasks.group_sizes.workload.plan import make_plan
    >>> plan = make_plan(
    ...     names=["n"], n_regions=[1], sizes=(1, 9), groups=5, epsilon=Fraction(1),
    ...     mechanism="hierarchical_dp",
    ... )
    >>> exact_curve(plan).largest_loss
    1.0
    """
    if universe_plan(plan).guarantee is None:
        return None
    return known_curve({}, [list(_alternatives(plan, is_bounded or plan.bounded))])


def _alternatives(plan: Plan, is_bounded: bool) -> Iterator[Counts]:
    """The counts of all levels that a change moves, for every kind of change, of a person who moves
    between groups if `is_bounded`; a plan of such neighbours has no other changes.
    """
    n_levels = len(plan.measured_levels)
    if plan.vector != GROUP_SIZES:
        times = 2 if is_bounded and not plan.bounded else 1
        yield _moved(plan, [{1: times * level.sensitivity} for level in plan.measured_levels])
    elif not is_bounded:
        yield _moved(plan, [JOINED] * n_levels)
    else:
        for apart in range(n_levels + 1):
            yield _moved(plan, [TOGETHER] * (n_levels - apart) + [APART] * apart)


def _moved(plan: Plan, moves: Sequence[Mapping[int, int]]) -> Counts:
    """The counts that move, given by level how many move how far."""
    found: Counter[ChangedCount] = Counter()
    for level, own in zip(plan.measured_levels, moves, strict=True):
        noise = level.noise_of(plan.noise)
        if noise is None:
            raise ValueError(f"level {level.level} is measured without noise")
        for shift, number in own.items():
            found[ChangedCount(distribution_of(noise), shift)] += number
    return found
