"""The mechanisms, the vectors that they measure, and the sensitivities of those.

A mechanism measures one vector at every level and estimates the group sizes from all levels' noisy
vectors. Levels are disjoint queries on the same people, so their losses add; the regions of one
level hold disjoint groups, so a level is charged once. Noise is discrete Laplace, of the scale that
the L1 norm of a change needs for a share of epsilon, or discrete Gaussian, of the variance that its
squared L2 norm needs for a share of rho (zCDP).

Neighbouring datasets (`accounting.UNBOUNDED`): one person joins or leaves a group that is there
with and without the person, and changes its size by at most `quantity` q, which is 1 where every
person counts once. Groups neither appear nor vanish nor move to another region, which is why their
numbers may be invariants; where groups may be empty (size 0), this covers people who live alone
too. Bounded neighbours (`accounting.BOUNDED`): a person moves from one group to another. The
sensitivities below are of one level, and the tests confirm them over all neighbours of all small
datasets. A largest size that stands for "N or more" lowers sizes to N, after which a person still
changes a size by at most q: no sensitivity grows.

`group_sizes`
    n[r, s], the groups of size s in region r. A person who joins a group of size k in region r
    takes it out of n[r, k] and puts it into n[r, k + q]: two entries change by one, whatever q.
    L1 is 2, squared L2 is 2. One who moves changes four entries: L1 is 4. Two of them may be the
    same entry and change by two, where both groups had, or have afterwards, the same size, but
    not both pairs at once, since then nothing would have changed: squared L2 is 4 + 1 + 1 = 6.
`cumulative_group_sizes`
    c[r, s] = n[r, 1] + ... + n[r, s]. Of region r the entries k, ..., k + q - 1 fall by one, and
    no other: L1 and squared L2 are q, which is 1 for quantity 1 (Lemma 6 of [GroupSizes2021]). One
    who moves raises q entries by one and lowers q by one; entries that do both stay. L1 and
    squared L2 are 2 q.
`chained_cumulative_group_sizes`
    C[s, r] sums n over all pairs up to (s, r), sizes first and regions within: the groups below
    size s of all regions, and those of size s of the first r regions. The group leaves at (k, r)
    and comes back at (k + q, r), so that every entry in between falls by one, and there are q R of
    them, where R is the number of regions of the level: L1 and squared L2 are q R, and 2 q R for
    one who moves. In L2 itself that is sqrt(R) where it is R in L1. The paper calibrates this
    vector to a sensitivity of 1 ("published"), which covers only levels of a single region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

GROUP_SIZES = "group_sizes"
CUMULATIVE_GROUP_SIZES = "cumulative_group_sizes"
CHAINED_CUMULATIVE_GROUP_SIZES = "chained_cumulative_group_sizes"

HIERARCHICAL = "hierarchical"
HIERARCHICAL_DP = "hierarchical_dp"
CUMULATIVE = "cumulative"
CUMULATIVE_DP = "cumulative_dp"
CHAIN_DP = "chain_dp"
TOPDOWN = "topdown"

VECTOR_OF: Mapping[str, str] = {
    HIERARCHICAL: GROUP_SIZES,
    HIERARCHICAL_DP: GROUP_SIZES,
    CUMULATIVE: CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_DP: CUMULATIVE_GROUP_SIZES,
    CHAIN_DP: CHAINED_CUMULATIVE_GROUP_SIZES,
    TOPDOWN: GROUP_SIZES,
}
"""The vector that each mechanism measures."""

RELAXED = (HIERARCHICAL, CUMULATIVE)
"""Baselines that round a relaxed program: their counts need not add up."""

KEEP_ROWS = (HIERARCHICAL_DP, CUMULATIVE_DP)
"""Mechanisms that can keep public numbers of groups by region."""

PROVEN: Final = "proven"
PUBLISHED: Final = "published"
"""Calibrations: to the sensitivities above, or to the paper's."""

PUBLISHED_SENSITIVITY: Mapping[str, int] = {
    GROUP_SIZES: 2,
    CUMULATIVE_GROUP_SIZES: 1,
    CHAINED_CUMULATIVE_GROUP_SIZES: 1,
}
"""The sensitivity that the paper calibrates the noise of each vector to."""


def sensitivity(vector: str, n_regions: int, *, bounded: bool = False, quantity: int = 1) -> int:
    """L1 sensitivity of a vector at a level of `n_regions` regions; see the module's docstring.

    `bounded` takes datasets in which a person moves between groups as neighbours, and doubles the
    result. `quantity` is the most by which one person changes the size of a group.

    >>> sensitivity(CHAINED_CUMULATIVE_GROUP_SIZES, 52)
    52
    """
    joining = {
        GROUP_SIZES: 2,
        CUMULATIVE_GROUP_SIZES: quantity,
        CHAINED_CUMULATIVE_GROUP_SIZES: quantity * n_regions,
    }[vector]
    return 2 * joining if bounded else joining


def squared_sensitivity(
    vector: str, n_regions: int, *, bounded: bool = False, quantity: int = 1
) -> int:
    """Squared L2 sensitivity of a vector; arguments as for `sensitivity`.

    Cumulative entries change by one at most, so that it is the L1 sensitivity there.

    >>> squared_sensitivity(GROUP_SIZES, 52, bounded=True)
    6
    """
    if vector == GROUP_SIZES:
        return 6 if bounded else 2
    return sensitivity(vector, n_regions, bounded=bounded, quantity=quantity)


def level_weights(
    variances: Sequence[Fraction | None], *, resolution: int = 4, most: int = 1 << 18
) -> tuple[int, ...]:
    """Integer weights of the levels' squared distances, in proportion to 1 / variance.

    They are all 1 for equal variances, and 0 for a level that is not measured. Otherwise the
    noisiest level gets `resolution`, and ratios are rounded to multiples of 1 / resolution and
    cut at `most` / resolution. Any weights give a private and consistent result; these are nearly
    those of the most likely one.

    >>> level_weights([Fraction(1), Fraction(4), Fraction(4), None])
    (16, 4, 4, 0)
    """
    measured = [variance for variance in variances if variance is not None]
    noisiest = max(measured)
    if min(measured) == noisiest:
        return tuple(int(variance is not None) for variance in variances)
    return tuple(
        0 if variance is None else min(most, round(resolution * noisiest / variance))
        for variance in variances
    )


def default_mechanism(n_regions: Sequence[int], *, quantity: int = 1) -> str:
    """The mechanism for these numbers of regions per level, from public sizes alone.

    That whose noise is least in a single count of the finest level, as a standard deviation in
    units of sqrt(2) levels / epsilon: the sensitivity, times sqrt(2) where a count is a difference
    of two cumulative ones. Neither N nor epsilon changes the order, and with Gaussian noise it is
    the same: there `cumulative_dp` and `hierarchical_dp` tie where a person counts once, and
    monotone counts were nearer to the truth wherever both were tried. Where a person counts once
    this is `cumulative_dp`, or `chain_dp` where no level has more than one region, because its
    single program is then as quiet and exact; if a person may count twice and more,
    `hierarchical_dp`.

    >>> default_mechanism([1, 52, 3144]), default_mechanism([1])
    ('cumulative_dp', 'chain_dp')
    """
    finest = n_regions[-1]
    variance = {
        CHAIN_DP: 2 * sensitivity(CHAINED_CUMULATIVE_GROUP_SIZES, finest, quantity=quantity) ** 2,
        CUMULATIVE_DP: 2 * sensitivity(CUMULATIVE_GROUP_SIZES, finest, quantity=quantity) ** 2,
        HIERARCHICAL_DP: sensitivity(GROUP_SIZES, finest, quantity=quantity) ** 2,
    }
    return min(variance, key=variance.__getitem__)
