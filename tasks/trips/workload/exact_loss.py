"""The exact privacy curve of trips: by how much one person moves the counts of every level.

Noise is fixed for every level before anything is drawn. Which nodes of a level are measured follows
from what was published above it; whatever they are, a person moves no more of them, and by no more,
than if all were measured, so that the worst pairs of the levels compose (`ledger.exact_curve`).

A person makes up to m trips. Let there be k of them in one table and m in the other (k is 0 where a
person is added or removed, m where everybody makes m, and otherwise anything up to m; more trips on
both sides move every count as far or further). Then

- the total moves by m - k, and is not measured where that is 0 in any case;
- at any other level the m trips lie in nodes whose moves add up to m, and the k trips in others:
  the worst is one node that moves by m and one that moves by k (the second rule of
  `ledger.exact_curve`), of two leaves that differ from the first measured level on. Trips in the
  same node cancel;
- where no two trips are in one leaf, m + k leaves move by one. A level above has the worst case of
  any trips if one of its nodes has m leaves. Between the two, where nodes have several leaves but
  fewer than m, it is not known which change is the worst, and no curve is told.

Whose trips beyond m are dropped at random moves what the trips that stay move: a curve that bounds
every choice bounds the random one. The stability histogram puts noise on what occurs alone, so that
neighbouring tables have different counts: it has its epsilon and delta, and no curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...ledger.exact_curve import MOST_COMBINATIONS, Counts, PrivacyCurve, known_curve
from ...ledger.loss_laws import ChangedCount
from ...noise.margins import distribution_of
from .neighbors import Contribution, largest_leaf_counts
from .plan import Plan


def exact_curve(plan: Plan, contribution: Contribution) -> PrivacyCurve | None:
    """The curve between tables that differ in one person; None where it is not known."""
    m, levels = contribution.trips, list(plan.levels)
    if plan.guarantee is None or plan.budget is None or m >= MOST_COMBINATIONS:
        return None
    # Only the total tells tables of more and of fewer trips apart, and the most trips come first.
    fewer = m if 0 in levels else 0
    others: Iterable[int] = [0]
    if contribution.is_bounded:
        others = [m] if contribution.is_exact else range(m, m - fewer - 1, -1)
    spread = [level for level in levels if level and _is_spread(plan, contribution, level)]
    if any(largest_leaf_counts(plan.tree, level, 1) != [1] for level in spread):
        return None
    return known_curve({}, [[_moved(plan, m, k, spread) for k in others]])


def curve_of_change(plan: Plan, contribution: Contribution) -> PrivacyCurve | None:
    """The curve of one person's change, which the ledger counts, whatever the plan's neighbours
    are; None as `exact_curve`.

    Where the plan is for a person who is added or removed, one who is changed may make any number
    of trips before and after.
    """
    if not contribution.is_bounded:
        contribution = replace(contribution, is_bounded=True, is_exact=False)
    return exact_curve(plan, contribution)


def _is_spread(plan: Plan, contribution: Contribution, level: int) -> bool:
    """Whether a person's trips cannot all be in one node of a level."""
    largest = largest_leaf_counts(plan.tree, level, 1)[0]
    return contribution.are_distinct and largest < contribution.trips


def _moved(plan: Plan, m: int, k: int, spread: Iterable[int]) -> Counts:
    """The counts that m trips in one table and k others in the other move."""
    found: Counter[ChangedCount] = Counter()
    for level in plan.levels:
        moves: Mapping[int, int] = Counter([m - k] if level == 0 else [m, k])
        if level in spread:
            moves = {1: m + k}
        noise = plan.noise_of(level)
        for shift, number in moves.items():
            if shift and noise is not None:
                found[ChangedCount(distribution_of(noise), shift)] += number
    return found
