"""Cost and exact privacy curve of a group-sizes plan.

All levels' noise is fixed by the plan before anything is drawn, so that the worst pairs of the
levels compose (`ledger.exact_curve`). The largest change by one person at a level follows from the
vector (`plan` derives it; q is the most by which a person changes a size, R the regions):

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
from fractions import Fraction

from ..ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, ZCDP, Guarantee
from ..ledger.exact_curve import Counts, PrivacyCurve, known_curve
from ..ledger.loss_laws import ChangedCount
from ..ledger.plan import Measure, UniversePlan
from ..noise.quantiles import distribution_of
from ..solvers.level_design import LevelErrors, RegularTree
from .plan import CHAINED_CUMULATIVE_GROUP_SIZES, GROUP_SIZES, PROVEN, TOPDOWN, UNIVERSE, Plan


def universe_plan(plan: Plan) -> UniversePlan:
    """The noise of all levels and its guarantee: epsilon of pure differential privacy, or rho of
    zCDP; neither without noise, or with the published scale.

    The levels' parts add up. The noise is calibrated to the neighbours of the plan: bounded, where
    a person moves between groups, or unbounded, where one joins or leaves a group; an unbounded
    rho is charged as four times itself in bounded zCDP, by group privacy.
    """
    guarantee = None
    if plan.loss is not None and plan.calibration == PROVEN:
        neighbors = BOUNDED if plan.bounded else UNBOUNDED
        guarantee = Guarantee(PURE_DP if plan.rho is None else ZCDP, plan.loss, neighbors)
    return UniversePlan(
        UNIVERSE,
        plan.noise,
        guarantee,
        plan.loss,
        tuple(
            Measure(
                level.level,
                level.noise_of(plan.noise),
                level.share,
                level.level,
                plan.vector,
                moved=level.sensitivity,
                areas=level.n_regions,
                answers=level.n_regions * plan.n_sizes,
            )
            for level in plan.levels
        ),
    )


def needed_split(plan: Plan, wanted: Mapping[str, int]) -> str | None:
    """A sentence: the smallest rho, and its shares, with which estimates of levels have margins.

    `wanted` has the margins by level. The estimates are the entries of the measured vector on a
    tree of the mean fan-outs, before counts are made whole, ordered and not negative. None for pure
    differential privacy, whose program is another, and for the chain, which is no tree. Raises
    InputRefused for a level that is not there or is the same as another.
    """
    errors = level_errors(plan)
    if errors.tree is None:
        return None

    def setting(shares: Mapping[int, Fraction]) -> str:
        named = shares_by_name(plan, shares).items()
        listed = ", ".join(f'{name} = "{share}"' for name, share in named)
        return f"mechanism.levels = {{ {listed} }}"

    return errors.smallest_budget(wanted, plan_shares(plan), setting)


def level_errors(plan: Plan) -> LevelErrors:
    """Errors of measured entries as functions of the levels' losses, by distinct level.

    Levels are combined on a tree of the mean fan-outs. Under pure differential privacy, and along
    the chain, which is no tree, every level counts alone.
    """
    levels = [level for level in plan.levels if level.same_as is None]
    names = {depth: level.level for depth, level in enumerate(levels)}
    if plan.rho is None:
        units = {depth: 2.0 * level.sensitivity**2 for depth, level in enumerate(levels)}
        return LevelErrors(names, units, None, 2, "epsilon")
    units = {depth: level.sensitivity / 2 for depth, level in enumerate(levels)}
    if plan.vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        return LevelErrors(names, units, None, 1, "rho")
    numbers = [level.n_regions for level in levels]
    fanouts = tuple(below / above for above, below in zip(numbers, numbers[1:], strict=False))
    tree = RegularTree(fanouts, is_root_exact=False, is_combined=plan.mechanism != TOPDOWN)
    return LevelErrors(names, units, tree, 1, "rho")


def plan_shares(plan: Plan) -> dict[int, Fraction]:
    """The shares of a plan by distinct level, as `level_errors` numbers them."""
    levels = [level for level in plan.levels if level.same_as is None]
    return {depth: level.share for depth, level in enumerate(levels)}


def shares_by_name(plan: Plan, shares: Mapping[int, Fraction]) -> dict[str, Fraction]:
    """Shares of distinct levels as `mechanism.levels` has them; 0 for one that repeats another."""
    found: dict[str, Fraction] = {}
    given = iter(shares.values())
    for level in plan.levels:
        found[level.level] = next(given) if level.same_as is None else Fraction(0)
    return found


JOINED = {1: 2}
"""Counts of group sizes that one person more or less moves, by how far."""

APART, TOGETHER = {1: 4}, {2: 1, 1: 2}
"""Counts of group sizes that a person moves from a group to another one: of another region or size,
or of the same region and size."""


def exact_curve(plan: Plan, *, is_bounded: bool = False) -> PrivacyCurve | None:
    """The curve between the plan's neighbours, or of a person who moves between groups, which the
    ledger counts, if `is_bounded`; None where nothing is guaranteed, or not known.

    A person who joins or leaves a group moves fewer counts than one who moves between two, whose
    curve covers this too.

    >>> from fractions import Fraction
    >>> from spineflow.tasks.group_sizes.plan import make_plan
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
        yield _changed_counts(
            plan, [{1: times * level.sensitivity} for level in plan.measured_levels]
        )
    elif not is_bounded:
        yield _changed_counts(plan, [JOINED] * n_levels)
    else:
        for apart in range(n_levels + 1):
            yield _changed_counts(plan, [TOGETHER] * (n_levels - apart) + [APART] * apart)


def _changed_counts(plan: Plan, moves: Sequence[Mapping[int, int]]) -> Counts:
    """The counts that move, given by level how many move how far."""
    found: Counter[ChangedCount] = Counter()
    for level, own in zip(plan.measured_levels, moves, strict=True):
        noise = level.noise_of(plan.noise)
        if noise is None:
            raise ValueError(f"level {level.level} is measured without noise")
        for shift, number in own.items():
            found[ChangedCount(distribution_of(noise), shift)] += number
    return found
