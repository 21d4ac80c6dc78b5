"""Privacy curves: against all outcomes in fifty digits, closed forms, published figures, bounds."""

from __future__ import annotations

import math
import time
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spineflow.tasks.ledger import exact_curve
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.exact_curve import (
    Counts,
    PrivacyCurve,
    deltas_at_most,
    known_curve,
    known_epsilon,
)
from spineflow.tasks.ledger.loss_laws import ChangedCount, grid_about
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tasks.ledger.all_outcomes import by_enumeration
from tests.tasks.ledger.lower_bounds import epsilon_lower

DELTA = Fraction(1, 10**10)


def gaussian(sigma_squared: str | Fraction, shift: int = 1) -> ChangedCount:
    return ChangedCount(IntegerDistribution(1 / (2 * Fraction(sigma_squared)), 2), shift)


def laplace(epsilon: str | Fraction, shift: int = 1) -> ChangedCount:
    return ChangedCount(IntegerDistribution(Fraction(epsilon), 1), shift)


VECTORS = [
    ({gaussian("1/4"): 1}, "1", 0.6032048691666064045878184),
    ({gaussian("1"): 1}, "1", 0.1413513394056219080995417),
    ({gaussian("1"): 2}, "1", 0.2625001969545945235363171),
    ({gaussian("1"): 2}, "4", 0.003771607489693077201418159),
    ({gaussian("1/2"): 2}, "3", 0.2072283463456543045706329),
    ({gaussian("4"): 2}, "1", 0.0379694447235448162968751),
    ({gaussian("1"): 2, gaussian("4"): 2}, "5/2", 0.1057810410232722331540676),
    (
        {gaussian("5/2"): 2, gaussian("10"): 2, gaussian("100/3"): 2},
        "4",
        0.00007971943509668536387582891,
    ),
    ({gaussian("9/4", 3): 1}, "3", 0.1918758607179281142758599),
    ({laplace("1/2"): 1}, "1/4", 0.1376875166317472721135555),
    ({laplace("1/2"): 2}, "1/2", 0.1524519067986655865002952),
    ({laplace("1/2"): 2, gaussian("4"): 2}, "1", 0.1239949538167764230766746),
    ({laplace("1/2", 3): 1}, "1", 0.2449186624037091292778011),
]
"""Counts, epsilon, and delta by direct sums over all outcomes in fifty digits."""


@pytest.mark.parametrize(("changed", "epsilon", "delta"), VECTORS)
def test_curves_are_those_of_direct_sums(changed, epsilon: str, delta: float) -> None:
    curve, at = PrivacyCurve(changed), float(Fraction(epsilon))
    rounding = 1e-12 * delta
    assert delta - rounding <= curve.delta_upper(at) <= delta + 1e-12
    assert delta - 1e-11 * delta - 1e-12 <= curve.delta_lower(at) <= delta + rounding
    exact = Fraction(delta).limit_denominator(10**16)
    assert curve.epsilon_upper(exact) == pytest.approx(at, abs=1e-9)
    assert epsilon_lower(curve, exact) == pytest.approx(at, abs=1e-9)


SMALL = st.dictionaries(
    st.one_of(
        st.builds(gaussian, st.fractions(Fraction(1, 4), 6, max_denominator=7), st.integers(1, 2)),
        st.builds(laplace, st.fractions(Fraction(1, 2), 2, max_denominator=7), st.integers(1, 3)),
    ),
    st.integers(1, 2),
    min_size=1,
    max_size=2,
)


LEFT_OUT = Decimal("1e-40")
"""More than the probability of all draws that the sum over outcomes leaves out."""


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(SMALL, st.fractions(0, 6, max_denominator=5))
@example({gaussian("27/5"): 1}, Fraction(6))
def test_bounds_enclose_the_sum_over_all_outcomes(changed, epsilon: Fraction) -> None:
    """Threat model: an exact epsilon below the true one."""
    curve, exact = PrivacyCurve(changed), by_enumeration(changed, epsilon)
    upper, lower = curve.delta_upper(float(epsilon)), curve.delta_lower(float(epsilon))
    assert Decimal(lower) <= exact + LEFT_OUT and exact <= Decimal(upper)
    if math.lcm(*(count.stride.denominator for count in changed)) < 1000:
        assert Decimal(upper) - exact < Decimal("1e-12")
        assert exact - Decimal(lower) < Decimal("1e-12")


INCOMMENSURABLE = {gaussian(Fraction(10007, 9973)): 2, gaussian(Fraction(40013, 9967)): 3}


@pytest.mark.parametrize("epsilon", ["1/2", "3", "9"])
def test_losses_off_every_grid_are_enclosed_too(epsilon: str) -> None:
    """Their common lattice is too fine: one bound moves them up to a grid, the other to and fro.

    Threat model: an exact epsilon below the true one.
    """
    curve, exact = PrivacyCurve(INCOMMENSURABLE), float(by_cells(INCOMMENSURABLE, epsilon))
    upper, lower = (
        curve.delta_upper(float(Fraction(epsilon))),
        curve.delta_lower(float(Fraction(epsilon))),
    )
    assert lower < exact < upper
    assert curve.epsilon_upper(exact) - epsilon_lower(curve, exact) < 1e-3


@pytest.mark.parametrize("error", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 9.0])
def test_an_upper_bound_with_an_error_is_one_and_no_further_away(epsilon: float, error: float):
    for curve in (PrivacyCurve(INCOMMENSURABLE), PrivacyCurve({gaussian("4"): 40})):
        rough = curve.delta_upper(epsilon, error)
        assert curve.delta_lower(epsilon) <= rough <= curve.delta_upper(epsilon - error)
        # It takes no finer grid, in place of a lattice that has all losses as they are.
        fine, coarse = (curve._grid(epsilon, is_upper=True, error=own) for own in (0.0, error))
        assert coarse.points <= fine.points


def by_cells(changed: dict[ChangedCount, int], epsilon: str) -> float:
    """delta by the sums of each kind's draws, in doubles."""
    sums = []
    for count, number in changed.items():
        c = float(count.noise.c)
        reach = int(math.sqrt(100 / c))
        one = [math.exp(-c * x * x) for x in range(-reach, reach + 1)]
        whole = math.fsum(one)
        total = [1.0]
        for _ in range(number):
            added = [0.0] * (len(total) + len(one) - 1)
            for i, p in enumerate(total):
                for j, q in enumerate(one):
                    added[i + j] += p * q / whole
            total = added
        middle = len(total) // 2
        sums.append([(c * (number + 2 * (k - middle)), p) for k, p in enumerate(total)])
    at = float(Fraction(epsilon))
    return math.fsum(
        p * q * -math.expm1(at - a - b) for a, p in sums[0] for b, q in sums[1] if a + b > at
    )


@settings(max_examples=20, deadline=None)
@given(SMALL, st.fractions(0, 5, max_denominator=5), st.fractions(0, 3, max_denominator=5))
@example({gaussian("7/3"): 2}, Fraction(0), Fraction(0))
def test_curves_fall_and_more_counts_never_help(changed, epsilon, more) -> None:
    curve = PrivacyCurve(changed)
    first, second = curve.delta_upper(float(epsilon)), curve.delta_lower(float(epsilon + more))
    assert second <= first
    further = gaussian("7/3")
    larger = PrivacyCurve({**changed, further: changed.get(further, 0) + 1})
    assert larger.delta_upper(float(epsilon)) >= curve.delta_lower(float(epsilon))


@settings(max_examples=20, deadline=None)
@given(SMALL, st.fractions(0, 5, max_denominator=5), st.fractions(0, 1))
def test_curves_fall_strictly_up_to_the_largest_loss(changed, epsilon, share) -> None:
    """By 1 % of the loss or more, delta falls by more than both bounds may be wrong."""
    curve = PrivacyCurve(changed)
    at = float(epsilon)
    beyond = at + float(Fraction(1, 100) + share) * min(1.0, curve.largest_loss)
    upper = curve.delta_upper(beyond)
    if curve.delta_lower(at) > 1e-9:
        assert upper < curve.delta_lower(at)


@settings(max_examples=20, deadline=None)
@given(st.lists(SMALL, min_size=2, max_size=3), st.randoms(), st.fractions(0, 5, max_denominator=5))
def test_the_order_of_composition_does_not_matter(parts, randomness, epsilon: Fraction) -> None:
    """Neither that of the counts, nor that of the choices, nor what is a choice of one."""
    at, curves = float(epsilon), []
    for _ in range(2):
        randomness.shuffle(parts)
        mixed = [dict(randomness.sample(list(part.items()), len(part))) for part in parts]
        first, *others = mixed
        curves.append(PrivacyCurve(first, tuple((other,) for other in others)))
    together: Counter[ChangedCount] = Counter()
    for part in parts:
        together.update(part)
    curves.append(PrivacyCurve(dict(together)))
    one, *rest = curves
    for curve in rest:
        assert curve.rho == one.rho and curve.largest_loss == one.largest_loss
        assert curve.delta_upper(at) == pytest.approx(one.delta_upper(at), rel=1e-10, abs=1e-12)
        assert curve.delta_lower(at) == pytest.approx(one.delta_lower(at), rel=1e-10, abs=1e-12)


@settings(max_examples=20, deadline=None)
@example({laplace("5/3"): 2}, 12)
@example({laplace("2"): 2}, 12)
@given(SMALL, st.integers(2, 14))
def test_the_exact_epsilon_is_within_the_conversion_of_rho(changed, digits: int) -> None:
    curve, delta = PrivacyCurve(changed), Fraction(1, 10**digits)
    upper, lower = curve.epsilon_upper(delta), epsilon_lower(curve, delta)
    assert lower <= upper <= epsilon_tight(curve.rho, delta) + 1e-9
    assert upper <= curve.largest_loss
    # Another grid may have its losses wrong by as much as its law says, and delta falls by no more
    # than epsilon rises.
    law = curve._grid(upper, is_upper=True).law(curve._combinations[0])
    assert curve.delta_upper(upper) <= float(delta) * (1 + 1e-9) + law.misplaced


@pytest.mark.parametrize(("changed", "epsilon", "delta"), VECTORS)
def test_the_epsilon_at_a_delta_is_enclosed(changed, epsilon: str, delta: float) -> None:
    curve, exact = PrivacyCurve(changed), float(Fraction(epsilon))
    lower, upper = epsilon_lower(curve, Fraction(delta)), curve.epsilon_upper(Fraction(delta))
    assert lower <= exact * (1 + 1e-13) and exact <= upper * (1 + 1e-13)
    assert upper == pytest.approx(lower, rel=1e-9)


@pytest.mark.parametrize("a", ["1/20", "1/10", "1", "5/2"])
def test_one_geometric_count_has_its_closed_form(a: str) -> None:
    curve, largest = PrivacyCurve({laplace(a): 1}), float(Fraction(a))
    for at in (0.0, largest / 3, largest * 0.9):
        exact = (math.exp(largest) - math.exp(at)) / (1 + math.exp(largest))
        assert curve.delta_upper(at) == pytest.approx(exact, rel=1e-11)
    assert curve.delta_upper(curve.largest_loss) == 0
    for delta in (Fraction(1, 1000), Fraction(1, 10**6), DELTA):
        exact = math.log(math.exp(largest) - float(delta) * (1 + math.exp(largest)))
        assert exact <= curve.epsilon_upper(delta) == pytest.approx(exact, rel=1e-7)
        assert exact >= epsilon_lower(curve, delta) == pytest.approx(exact, rel=1e-7)


@cache
def preset_counts(preset: str) -> dict[str, dict[ChangedCount, int]]:
    """Of every universe, the counts that one changed record moves: two of each query."""
    files = ("persons", "units", "geography", *(["redistricting"] if "dhc" in preset else []))
    source = {
        "preset": preset,
        "input": dict.fromkeys(files, "/nowhere"),
        "privacy": {"dataset": "d"},
    }
    loaded = load_settings(TopdownSettings, source, presets=PRESETS)
    found: dict[str, dict[ChangedCount, int]] = {}
    for universe in loaded.run.universes:
        budget, counts = loaded.budget_of(universe), found.setdefault(universe, {})
        for geolevel, shares in budget.query_shares.items():
            for share in shares.values():
                variance = budget.noise(budget.geolevel_shares[geolevel], share).parameter
                counts[gaussian(variance)] = counts.get(gaussian(variance), 0) + 2
        assert PrivacyCurve(counts).rho == budget.total
    return found


@cache
def bounds_of(preset: str, universe: str) -> tuple[float, float, float]:
    """The bounds of a universe's epsilon, and the seconds of processor time that they took."""
    curve, begun = PrivacyCurve(preset_counts(preset)[universe]), time.process_time()
    upper, lower = curve.epsilon_upper(DELTA), epsilon_lower(curve, DELTA)
    return upper, lower, time.process_time() - begun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "universe", "exact", "tight"),
    [
        ("pl94_2020_us", "persons", 16.465, 17.144),
        ("pl94_2020_us", "units", 2.363, 2.475),
        ("dhc_persons_2020_us", "persons", 24.45649, 25.419),
    ],
)
def test_presets_have_the_published_figures(
    preset: str, universe: str, exact: float, tight: float
) -> None:
    """[ExactAccounting2026]'s production figures, and the conversions that the Bureau reported."""
    upper, lower, _ = bounds_of(preset, universe)
    assert upper == pytest.approx(exact, abs=6e-4 if "pl94" in preset else 6e-6)
    assert 0 <= upper - lower < 1e-3
    rho = PrivacyCurve(preset_counts(preset)[universe]).rho
    assert epsilon_tight(rho, DELTA) == pytest.approx(tight, abs=6e-4)


SECONDS = 10.0
"""Most processor time that both bounds of a preset may take."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset",
    [
        "dhc_persons_2020_us",
        *(
            pytest.param(name, marks=pytest.mark.soak(3))
            for name in (
                "pl94_2020_us",
                "pl94_2020_pr",
                "pl94_april_2021_us",
                "pl94_april_2021_us_lower",
                "dhc_persons_2020_pr",
            )
        ),
    ],
)
def test_bounds_of_every_preset_are_close_and_quick(preset: str) -> None:
    spent = 0.0
    for universe in preset_counts(preset):
        upper, lower, seconds = bounds_of(preset, universe)
        spent += seconds
        assert 0 <= upper - lower < 1e-3
    assert spent < SECONDS


def test_persons_of_the_characteristics_have_the_published_delta() -> None:
    """[ExactAccounting2026]'s, without bypass, in fifteen digits."""
    curve = PrivacyCurve(preset_counts("dhc_persons_2020_us")["persons"])
    at, delta = 26.340588852722354, 1.78319933504176e-12
    assert delta <= curve.delta_upper(at) <= delta * (1 + 1e-9)
    assert delta * (1 - 1e-9) <= curve.delta_lower(at) <= delta * (1 + 1e-14)


NOISES = st.one_of(
    st.builds(gaussian, st.fractions(Fraction(1, 3), 8, max_denominator=7)),
    st.builds(laplace, st.fractions(Fraction(1, 3), 2, max_denominator=7)),
)


@settings(max_examples=60, deadline=None)
@given(NOISES, st.integers(1, 3), st.integers(1, 3), st.fractions(0, 4, max_denominator=5))
def test_one_count_that_moves_as_far_is_the_worst(one, first, second, epsilon) -> None:
    """Both rules on which change is the worst."""
    noise = one.noise
    alone = by_enumeration({ChangedCount(noise, first + second): 1}, epsilon)
    moves = Counter([ChangedCount(noise, first), ChangedCount(noise, second)])
    assert by_enumeration(moves, epsilon) <= alone + Decimal("1e-30")
    assert by_enumeration({ChangedCount(noise, first): 1}, epsilon) <= alone + Decimal("1e-30")


def test_what_takes_too_much_is_not_known() -> None:
    counts = {gaussian("2"): 1}
    assert known_curve(counts) == PrivacyCurve(counts)
    assert known_curve({gaussian(Fraction(10**11)): 1}) is None
    many = tuple({gaussian(str(s)): 1} for s in range(2, 110))
    assert known_curve({}, (many, many)) is None
    assert known_epsilon(None, DELTA) is None
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        known_epsilon(known_curve(counts), Fraction(2))


def test_many_small_losses_beside_few_large_ones_are_bounded_closely() -> None:
    """Laws about the first guess say little, and each says where the next is to be made."""
    curve = PrivacyCurve({laplace(Fraction(1, 6 * r)): 2 * r for r in (1, 52, 3144)})
    upper, lower = curve.epsilon_upper(DELTA), epsilon_lower(curve, DELTA)
    # By the sum over all outcomes, in doubles.
    assert lower - 1e-9 <= 0.5045170903 <= upper + 1e-9 < lower + 1e-6


def test_nothing_changed_costs_nothing() -> None:
    curve = PrivacyCurve({})
    assert curve.epsilon_upper(DELTA) == curve.delta_upper(0.0) == curve.rho == 0


@pytest.mark.parametrize("delta", [0, 1, Fraction(-1, 2)])
def test_other_deltas_are_refused(delta) -> None:
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        PrivacyCurve({gaussian("2"): 1}).epsilon_upper(delta)


def test_a_delta_below_that_of_the_draws_left_out_is_refused() -> None:
    for digits in (90, 400):
        with pytest.raises(ValueError, match="too small to be worked out"):
            PrivacyCurve({gaussian("4"): 2}).epsilon_upper(Fraction(1, 10**digits))


def test_counts_that_move_by_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="moves by 1 or more"):
        gaussian("2", 0)
    with pytest.raises(ValueError, match="one or more"):
        PrivacyCurve({gaussian("2"): 0})


PATHS = tuple({gaussian(s): 1, gaussian(t): 1} for s, t in (("2", "6"), ("3", "3"), ("6", "2")))
"""Paths with equal sums of 1 / sigma^2 in part: a record's change touches two of them."""


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_the_worst_pair_of_paths_counts(epsilon: float) -> None:
    """Threat model: an exact epsilon below the true one."""
    curve = PrivacyCurve({gaussian("4"): 2}, (PATHS, PATHS))
    pairs = [
        PrivacyCurve({gaussian("4"): 2}, ((PATHS[i],), (PATHS[j],)))
        for i in range(3)
        for j in range(3)
    ]
    assert curve.delta_upper(epsilon) == pytest.approx(
        max(pair.delta_upper(epsilon) for pair in pairs), rel=1e-9
    )
    assert curve.epsilon_upper(DELTA) == pytest.approx(
        max(pair.epsilon_upper(DELTA) for pair in pairs), abs=1e-8
    )
    assert curve.delta_lower(epsilon) <= curve.delta_upper(epsilon)


UNLIKE = (
    ({gaussian("50"): 2}, {gaussian("1/10"): 2}),
    ({laplace(10): 1}, {laplace("1/2"): 25}),
    ({laplace(10): 1}, {gaussian("1/10"): 2}, {laplace("1/2"): 25}),
)
"""Alternatives of which the largest rho is not always that of the largest epsilon."""


@pytest.mark.parametrize("choice", UNLIKE)
def test_the_order_of_alternatives_does_not_change_a_bound(choice) -> None:
    alone = [PrivacyCurve(one) for one in choice]
    epsilon = max(one.epsilon_upper(DELTA) for one in alone)
    delta = max(one.delta_upper(5.0) for one in alone)
    bounds = set()
    for order in permutations(choice):
        curve = PrivacyCurve({}, [order])
        bounds.add((curve.epsilon_upper(DELTA), curve.delta_upper(5.0), curve.delta_lower(5.0)))
    ((upper, at_five, at_least),) = bounds
    assert upper == pytest.approx(epsilon, rel=1e-4)
    assert upper >= max(epsilon_lower(one, DELTA) for one in alone)
    assert at_five == pytest.approx(delta, rel=1e-6)
    assert at_five >= max(one.delta_lower(5.0) for one in alone) >= at_least * (1 - 1e-9)


def test_a_choice_of_one_is_no_choice() -> None:
    chosen = PrivacyCurve({}, ((PATHS[0],), (PATHS[0],)))
    plain = PrivacyCurve({gaussian("2"): 2, gaussian("6"): 2})
    assert chosen.rho == plain.rho
    assert chosen.epsilon_upper(DELTA) == pytest.approx(plain.epsilon_upper(DELTA), abs=1e-9)
    assert chosen.delta_lower(1.0) == pytest.approx(plain.delta_lower(1.0), rel=1e-9)


def test_too_many_combinations_are_refused() -> None:
    many = tuple({gaussian(str(s)): 1} for s in range(2, 110))
    with pytest.raises(ValueError, match="more than 5000 combinations"):
        PrivacyCurve({}, (many, many))
    with pytest.raises(ValueError, match="an alternative or more"):
        PrivacyCurve({}, ((),))


def paths(n: int, power: int) -> list[Counts]:
    """Ways of splitting a budget over seven levels of four queries, of which some leave one out."""
    random = np.random.default_rng(n)
    found = []
    for number in range(n):
        shares = random.integers(10, 40, size=7 - (number % 3 == 0))
        counts = {}
        for share in shares:
            for query in (10, 15, 30, 45):
                c = Fraction(int(share), int(shares.sum())) * Fraction(query, 50) * (3 - power)
                noise = IntegerDistribution(c + Fraction(1, 10**9 + number), power)
                counts[ChangedCount(noise)] = 1
        found.append(counts)
    return found


def curve(power: int) -> PrivacyCurve:
    """A path to any other, in each of two universes."""
    some, others = paths(4, power), paths(2, power)
    return PrivacyCurve({}, (some, some, others, others))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("epsilon", [0.2, 3.0, 9.0])
def test_bounds_are_no_smaller_than_those_of_laws_and_hardly_larger(
    power: int, epsilon: float
) -> None:
    combinations = curve(power)._combinations
    grid = grid_about(combinations, epsilon, True, 0.0)
    assert grid.stride is None
    due = np.array([grid.law(one).delta_upper(epsilon) for one in combinations])
    found = deltas_at_most(grid, combinations, epsilon)
    assert (found >= due).all()
    # The few losses of geometric noise have too many frequencies, unless there is more of it.
    assert (found <= due * (1 + 1e-7)).all() == (power == 2)
    assert len({sum(grid.part(part).n_counts for part in one) for one in combinations}) > 2


@pytest.mark.parametrize("power", [1, 2])
def test_what_is_left_out_changes_no_bit(power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def bounds() -> tuple[float, float]:
        exact_curve._upper_delta.cache_clear()
        exact_curve._upper_epsilon.cache_clear()
        return curve(power).epsilon_upper(1e-8), curve(power).delta_upper(3.0)

    found, asked = bounds(), 0

    def every(grid, combinations, epsilon):
        nonlocal asked
        asked += len(combinations)
        return np.full(len(combinations), np.inf)

    monkeypatch.setattr(exact_curve, "deltas_at_most", every)
    assert bounds() == found and asked > 20


def test_grids_that_hold_losses_as_they_are_and_few_combinations_are_left_alone() -> None:
    one = {ChangedCount(IntegerDistribution(Fraction(1, 2), 2)): 1}
    two = {ChangedCount(IntegerDistribution(Fraction(1, 4), 2)): 2}
    combinations = PrivacyCurve({}, [(one, two)] * 12)._combinations
    grid = grid_about(combinations, 3.0, True, 0.0)
    assert grid.stride is not None
    assert np.isinf(deltas_at_most(grid, combinations, 3.0)).all()
    few = curve(2)._combinations[:3]
    assert np.isinf(deltas_at_most(grid_about(few, 3.0, True, 0.0), few, 3.0)).all()
