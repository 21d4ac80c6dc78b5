"""The exact curve of topdown's measurements: every pair of paths, and where it is not known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from spineflow.geography.levels import Geolevel, Spine
from spineflow.tasks.census.influence import Norms, Reach
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.ledger.accounting import epsilon_tight, rho_from_epsilon_tight
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
)
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import (
    change_of_attribute,
    change_of_block,
    curve_of_records,
    exact_curve,
    exact_epsilon,
    exact_parts,
    exact_rho,
    paths_of,
    rho_under_guarantee,
    share_of,
)

from tests.tasks.ledger.all_outcomes import by_enumeration

DELTA = Fraction(1, 10**6)
HALF, NONE = Fraction(1, 2), Fraction(0)
BUDGET = Budget(
    "persons",
    DISCRETE_GAUSSIAN,
    Fraction(3, 2),
    DELTA,
    {"US": Fraction(1, 4), "State": Fraction(1, 4), "Block": HALF},
    {
        "US": {"total": Fraction(1)},
        "State": {"total": Fraction(1, 3), "sex": Fraction(2, 3)},
        "Block": {"total": HALF, "detailed": HALF},
    },
)


def spine_of(parents: list[list[int]], shares: list[list[Fraction]]) -> Spine:
    levels = []
    for name, parent, own in zip(BUDGET.geolevel_shares, parents, shares, strict=True):
        distinct = tuple(sorted(set(own)))
        n = len(parent)
        levels.append(
            Geolevel(
                name,
                np.array([str(i) for i in range(n)], dtype=object),
                np.array(parent),
                distinct,
                np.array([distinct.index(share) for share in own], dtype=np.int32),
                np.zeros(n, dtype=bool),
                np.ones(n, dtype=np.int64),
            )
        )
    n = len(parents[-1])
    return Spine("conventional", tuple(levels), np.arange(n).astype(str), np.arange(n))


# The second state is bypassed, and its blocks have its share; the last block has all but the root.
BYPASSED = spine_of(
    [[-1], [0, 0, 0], [0, 0, 1, 1, 2]],
    [
        [Fraction(1, 4)],
        [Fraction(1, 4), NONE, NONE],
        [HALF, HALF, Fraction(3, 4), Fraction(3, 4), Fraction(3, 4)],
    ],
)


def counts(shares: dict[str, Fraction]) -> Counter[ChangedCount]:
    """By the formula: sigma^2 = 1 / (rho share(g) share(q))."""
    return Counter(
        ChangedCount(IntegerDistribution(BUDGET.total * share * own / 2, 2))
        for geolevel, share in shares.items()
        for own in BUDGET.query_shares[geolevel].values()
        if share
    )


def test_paths_are_those_of_the_bypassed_spine() -> None:
    assert paths_of(BYPASSED) == [
        {"US": Fraction(1, 4), "State": NONE, "Block": Fraction(3, 4)},
        {"US": Fraction(1, 4), "State": Fraction(1, 4), "Block": HALF},
    ]


def test_the_curve_is_that_of_the_worst_pair_of_paths() -> None:
    paths = paths_of(BYPASSED)
    curve = exact_curve(BUDGET, paths)
    assert curve.rho == BUDGET.total
    pairs = [PrivacyCurve(counts(a) + counts(b)) for a in paths for b in paths]
    for epsilon in (1.0, 4.0, 9.0):
        worst = max(pair.delta_upper(epsilon) for pair in pairs)
        assert curve.delta_upper(epsilon) == pytest.approx(worst, rel=1e-4)
        assert curve.delta_upper(epsilon) >= max(pair.delta_lower(epsilon) for pair in pairs)
    exact = exact_epsilon(BUDGET, DELTA, paths)
    assert exact == pytest.approx(max(pair.epsilon_upper(DELTA) for pair in pairs), abs=1e-5)
    assert exact < epsilon_tight(BUDGET.total, DELTA)


def test_without_paths_nothing_is_bypassed() -> None:
    alone = exact_epsilon(BUDGET, DELTA)
    assert alone == exact_epsilon(BUDGET, DELTA, [BUDGET.geolevel_shares])
    assert alone == PrivacyCurve(
        {count: 2 * n for count, n in counts(BUDGET.geolevel_shares).items()}
    ).epsilon_upper(DELTA)


SCHEMA = Schema("persons", ("sex", "age"), (("female", "male"), ("child", "adult", "old")))
RECORDS = list(product(range(SCHEMA.n_cells), range(BYPASSED.n_blocks)))
"""Cell and block of every record that there may be."""


def geounits(record: tuple[int, int]) -> list[int]:
    """The geounit of a record at every geolevel, root first."""
    found = [record[1]]
    for level in reversed(BYPASSED.geolevels[1:]):
        found.insert(0, int(level.parent[found[0]]))
    return found


def answers(record: tuple[int, int]) -> dict[tuple, Fraction]:
    """The answers that count a record, each once, and the variances of their noise."""
    histogram = np.zeros((1, SCHEMA.n_cells), dtype=np.int64)
    histogram[0, record[0]] = 1
    found = {}
    for level, geounit in zip(BYPASSED.geolevels, geounits(record), strict=True):
        share = level.plb_shares[level.plb_share_code[geounit]]
        for name, own in BUDGET.query_shares[level.name].items() if share else ():
            counted = marginal_query(SCHEMA, name).answer(histogram)
            for row in np.flatnonzero(counted):
                variance = 1 / (BUDGET.total * share * own)
                found[level.name, geounit, name, int(row)] = variance
    return found


def worst(pairs: list[tuple], epsilon: float) -> float:
    """The largest delta of pairs of neighbours, by what differs between all their answers."""
    curves = set()
    for before, after in pairs:
        old, new = answers(before), answers(after)
        moved = [own for key, own in {**old, **new}.items() if (key in old) != (key in new)]
        counts = Counter(ChangedCount(IntegerDistribution(1 / (2 * own), 2)) for own in moved)
        curves.add(frozenset(counts.items()))
    return max(PrivacyCurve(dict(curve)).delta_upper(epsilon) for curve in curves)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("attribute", ["sex", "age"])
def test_an_attribute_is_protected_as_in_the_worst_pair(attribute: str, epsilon: float) -> None:
    """Threat model: an exact epsilon below the true one."""
    axis = SCHEMA.attributes.index(attribute)

    def rest(record: tuple[int, int]) -> tuple:
        levels = list(np.unravel_index(record[0], SCHEMA.shape))
        return (*levels[:axis], *levels[axis + 1 :], record[1])

    pairs = [(a, b) for a, b in product(RECORDS, RECORDS) if a != b and rest(a) == rest(b)]
    curve = exact_curve(BUDGET, paths_of(BYPASSED), change_of_attribute(SCHEMA, attribute))
    found = curve.delta_upper(epsilon)
    assert found == pytest.approx(worst(pairs, epsilon), rel=1e-4)
    assert found < exact_curve(BUDGET, paths_of(BYPASSED)).delta_lower(epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("geolevel", ["US", "State"])
def test_a_block_is_protected_as_in_the_worst_pair(geolevel: str, epsilon: float) -> None:
    """Threat model: an exact epsilon below the true one."""
    place = list(BUDGET.geolevel_shares).index(geolevel)
    pairs = [
        (a, b)
        for a, b in product(RECORDS, RECORDS)
        if a[0] == b[0] and a[1] != b[1] and geounits(a)[place] == geounits(b)[place]
    ]
    curve = exact_curve(BUDGET, paths_of(BYPASSED), change_of_block(BUDGET, geolevel))
    assert curve.delta_upper(epsilon) == pytest.approx(worst(pairs, epsilon), rel=1e-4)


def test_parts_of_a_record_lose_less_than_by_the_rho_of_their_share() -> None:
    parts = exact_parts(BUDGET, SCHEMA, DELTA)
    for name, epsilon in parts["attributes"].items():
        rho = BUDGET.total * share_of(
            BUDGET, BUDGET.geolevel_shares, change_of_attribute(SCHEMA, name)
        )
        assert 0.8 * epsilon_tight(rho, DELTA) < epsilon < epsilon_tight(rho, DELTA)
    for name, epsilon in parts["block_within"].items():
        rho = BUDGET.total * share_of(BUDGET, BUDGET.geolevel_shares, change_of_block(BUDGET, name))
        assert 0.8 * epsilon_tight(rho, DELTA) < epsilon < epsilon_tight(rho, DELTA)
    totals = {level: {"total": Fraction(1)} for level in BUDGET.geolevel_shares}
    assert exact_parts(replace(BUDGET, query_shares=totals), SCHEMA, DELTA)["attributes"] == {
        "sex": 0.0,
        "age": 0.0,
    }


def test_parts_of_a_record_have_their_share_of_pure_noise() -> None:
    pure = replace(BUDGET, mechanism=DISCRETE_LAPLACE, delta=None)
    parts = exact_parts(pure, SCHEMA, DELTA)
    for name, epsilon in parts["attributes"].items():
        spent = float(
            pure.total * share_of(pure, pure.geolevel_shares, change_of_attribute(SCHEMA, name))
        )
        assert 0.999 * spent < epsilon < spent
    close = {"rel": 3e-4}
    assert parts["block_within"] == pytest.approx({"US": 1.125, "State": 0.75}, **close)
    bypassed = exact_parts(pure, SCHEMA, DELTA, paths_of(BYPASSED))["block_within"]
    assert bypassed == pytest.approx({"US": 1.125, "State": 1.125}, **close)


def test_pure_noise_has_the_epsilon_of_its_curve_and_no_more_than_its_budget() -> None:
    pure = replace(BUDGET, mechanism=DISCRETE_LAPLACE, delta=None)
    alone = {count: 2 * n for count, n in laplace_counts(pure).items()}
    for delta in (DELTA, Fraction(1, 100)):
        found = exact_epsilon(pure, delta)
        assert found == PrivacyCurve(alone).epsilon_upper(delta) < 1.5
        assert by_enumeration(alone, Fraction(found)) <= delta
        assert by_enumeration(alone, Fraction(found) - Fraction(1, 10**6)) > delta
    many = [
        {"US": Fraction(1, 4), "State": Fraction(n, 1000), "Block": Fraction(3, 4) - n * STEP}
        for n in range(1, 110)
    ]
    for total in (Fraction(1, 10), Fraction(1, 3), Fraction(2, 3)):
        assert total <= Fraction(exact_epsilon(replace(pure, total=total), DELTA, many))


STEP = Fraction(1, 1000)


def laplace_counts(pure: Budget) -> Counter[ChangedCount]:
    """By the formula: scale = 2 / (epsilon share(g) share(q))."""
    return Counter(
        ChangedCount(IntegerDistribution(pure.total * share * own / 2, 1))
        for geolevel, share in pure.geolevel_shares.items()
        for own in pure.query_shares[geolevel].values()
    )


@pytest.mark.parametrize(
    "other", [{"infinite": True}, {"charge": Norms.of_records(2)}], ids=["no noise", "two records"]
)
@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
def test_where_it_is_not_known(mechanism: str, other: dict) -> None:
    budget = replace(BUDGET, mechanism=mechanism, **other)
    assert exact_curve(budget) is None and exact_epsilon(budget, DELTA) is None


def test_noise_of_no_use_has_none() -> None:
    wide = replace(BUDGET, total=Fraction(1, 10**12))
    assert exact_curve(wide) is None and exact_epsilon(wide, DELTA) is None


def test_more_pairs_of_paths_than_are_compared_have_none() -> None:
    paths = [
        {"US": Fraction(1, 4), "State": Fraction(n, 1000), "Block": Fraction(3, 4)}
        for n in range(1, 110)
    ]
    assert exact_epsilon(BUDGET, DELTA, paths) is None


@pytest.mark.parametrize("epsilon", ["1/10", "3", "17"])
def test_the_rho_of_an_epsilon_is_the_largest_that_meets_it(epsilon: str) -> None:
    asked = Fraction(epsilon)
    rho = exact_rho(BUDGET, asked, DELTA)
    assert rho > rho_from_epsilon_tight(asked, DELTA)
    assert exact_epsilon(replace(BUDGET, total=rho), DELTA) <= asked
    assert exact_epsilon(replace(BUDGET, total=rho), DELTA, paths_of(BYPASSED)) > 0
    more = rho * Fraction("1.0001")
    assert exact_epsilon(replace(BUDGET, total=more), DELTA) > asked
    assert len(str(rho.numerator * 10**12 // rho.denominator).rstrip("0")) <= 7
    assert exact_rho(replace(BUDGET, total=Fraction(9)), asked, DELTA) == rho


TWO_PATHS = [
    {"US": Fraction(1, 4), "State": Fraction(1, 4), "Block": HALF},
    {"US": Fraction(1, 4), "State": NONE, "Block": Fraction(3, 4)},
]


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("opposite", [False, True])
def test_the_curve_of_two_records_is_above_that_of_any_two(epsilon: float, opposite: bool) -> None:
    bound = curve_of_records(BUDGET, Reach("t", 2, opposite), TWO_PATHS).delta_upper(epsilon)
    found = []
    # Where either record was, and where it is: on paths of their own, or in the same cells.
    for ends in product(TWO_PATHS, repeat=4):
        for is_one_cell in {False, not opposite}:
            moved: Counter[ChangedCount] = Counter()
            for pair in (ends[:2], ends[2:]):
                for geolevel, queries in BUDGET.query_shares.items():
                    own = [path[geolevel] for path in pair]
                    together = is_one_cell and own[0] == own[1]
                    for share in own[: 1 if together else 2]:
                        for query_share in queries.values() if share else ():
                            c = BUDGET.total * share * query_share / 2
                            noise = IntegerDistribution(c, 2)
                            moved[ChangedCount(noise, 2 if together else 1)] += 1
            found.append(PrivacyCurve(moved).delta_lower(epsilon))
    assert max(found) * (1 - 1e-9) <= bound <= max(found) * 1.02 + 1e-4


def test_one_record_has_the_curve_of_a_universe() -> None:
    assert curve_of_records(BUDGET, Reach("t", 1), TWO_PATHS) == exact_curve(BUDGET, TWO_PATHS)
    assert curve_of_records(BUDGET, Reach("t", None)) is None
    charged = Norms.of_records(3)
    curve = curve_of_records(replace(BUDGET, charge=charged), Reach("t", 3))
    assert curve.rho == charged.rho_factor * BUDGET.total


def test_a_new_split_has_the_rho_of_the_same_guarantee_or_a_smaller_one_that_was_chosen() -> None:
    asked = Fraction(3), DELTA
    even = replace(BUDGET, geolevel_shares=dict.fromkeys(BUDGET.geolevel_shares, Fraction(1, 3)))
    largest, of_even = exact_rho(BUDGET, *asked), exact_rho(even, *asked)
    assert largest != of_even
    assert rho_under_guarantee(replace(BUDGET, total=largest), even, *asked) == of_even
    assert rho_under_guarantee(replace(BUDGET, total=Fraction(1, 20)), even, *asked) == Fraction(
        1, 20
    )
    assert rho_under_guarantee(replace(BUDGET, total=Fraction(9)), even, *asked) == of_even


def test_no_rho_follows_from_an_epsilon_without_a_curve() -> None:
    with pytest.raises(InputRefused, match="give rho in place of epsilon"):
        exact_rho(replace(BUDGET, charge=Norms.of_records(2)), Fraction(3), DELTA)
