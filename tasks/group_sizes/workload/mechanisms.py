"""The mechanisms, the vectors that they measure, and the sensitivities of those.

A mechanism measures one vector at every level with discrete Laplace noise and estimates the group
sizes from all levels' noisy vectors. Levels are disjoint queries on the same people, so their
epsilons add; the regions of one level hold disjoint groups, so a level is charged once.

Neighbouring datasets (`accounting.UNBOUNDED`): one person joins or leaves a group that is there
with and without the person, and changes its size by at most `quantity`, which is 1 where every
person counts once. Groups neither appear nor vanish, which is why their total must be declared an
invariant; where groups may be empty (size 0), this covers people who live alone too. Moving a
person from one group to another (`accounting.BOUNDED`) is a leaving and a joining, and by the
triangle inequality doubles every sensitivity. The sensitivities below are of one level, in the L1
norm, and the tests confirm them over all neighbours of all small datasets.

`group_sizes`
    n[r, s], the groups of size s in region r. A person who joins a group of size k in region r
    takes it out of n[r, k] and puts it into n[r, k + q]: 2, whatever the quantity q.
`cumulative_group_sizes`
    c[r, s] = n[r, 1] + ... + n[r, s]. Of region r the entries k, ..., k + q - 1 fall by one, and
    no other: q, which is 1 for quantity 1 (Lemma 6 of [GroupSizes2021]).
`chained_cumulative_group_sizes`
    C[s, r] sums n over all pairs up to (s, r), sizes first and regions within: the groups below
    size s of all regions, and those of size s of the first r regions. The group leaves at (k, r)
    and comes back at (k + q, r), so that every entry in between falls by one, and there are q R of
    them, where R is the number of regions of the level. The paper calibrates this vector to a
    sensitivity of 1 ("published"), which covers only levels of a single region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from spineflow.tasks.noise.mechanisms import DISCRETE_LAPLACE

NOISE = DISCRETE_LAPLACE

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

PROVEN, PUBLISHED = "proven", "published"
"""Calibrations: to the sensitivities above, or to those that the paper states."""

_PUBLISHED_SENSITIVITY: Mapping[str, int] = {
    GROUP_SIZES: 2,
    CUMULATIVE_GROUP_SIZES: 1,
    CHAINED_CUMULATIVE_GROUP_SIZES: 1,
}


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


def published_sensitivity(vector: str) -> int:
    """The sensitivity that the paper calibrates the noise of a vector to."""
    return _PUBLISHED_SENSITIVITY[vector]


def noise_scale(sensitivity: int, epsilon: Fraction, share: Fraction) -> Fraction:
    """Scale of the discrete Laplace noise: sensitivity / (epsilon share)."""
    return sensitivity / (epsilon * share)


def level_weights(
    scales: Sequence[Fraction], *, resolution: int = 4, most: int = 1 << 18
) -> tuple[int, ...]:
    """Integer weights of the levels' squared distances, in proportion to 1 / scale^2.

    They are all 1 for equal scales. Otherwise the noisiest level gets `resolution`, and ratios
    are rounded to multiples of 1 / resolution and cut at `most` / resolution. Any weights give a
    private and consistent result; these are nearly those of the most likely one.

    >>> level_weights([Fraction(1), Fraction(2), Fraction(2)])
    (16, 4, 4)
    """
    noisiest = max(scales)
    if min(scales) == noisiest:
        return (1,) * len(scales)
    return tuple(min(most, round(resolution * (noisiest / scale) ** 2)) for scale in scales)


def default_mechanism(n_regions: Sequence[int], *, quantity: int = 1) -> str:
    """The mechanism for these numbers of regions per level, from public sizes alone.

    That whose noise is least in a single count of the finest level, as a standard deviation in
    units of sqrt(2) levels / epsilon: the sensitivity, times sqrt(2) where a count is a difference
    of two cumulative ones. Neither N nor epsilon changes the order. Where a person counts once this
    is `cumulative_dp`, or `chain_dp` where no level has more than one region, because its single
    program is then as quiet and exact; if a person may count twice and more, `hierarchical_dp`.

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
