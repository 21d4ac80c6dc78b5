"""What draws guarantee together, against curves of all their counts, and sums of rho."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spineflow.tasks.ledger.accounting import Guarantee, epsilon_tight
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.ledger.spending import (
    PART,
    Spending,
    SpentDraw,
    compose_curves,
    curve_text,
    read_curve,
)
from spineflow.tasks.noise.distributions import IntegerDistribution

from tests.tasks.ledger.lower_bounds import epsilon_lower

DELTA = Fraction(1, 10**10)


def gaussian(sigma_squared: str | Fraction, shift: int = 1) -> ChangedCount:
    return ChangedCount(IntegerDistribution(1 / (2 * Fraction(sigma_squared)), 2), shift)


def laplace(epsilon: str | Fraction, shift: int = 1) -> ChangedCount:
    return ChangedCount(IntegerDistribution(Fraction(epsilon), 1), shift)


PATHS = tuple({gaussian(s): 1, gaussian(t): 1} for s, t in (("2", "6"), ("3", "3"), ("6", "2")))
"""Paths with equal sums of 1 / sigma^2, as where geounits are bypassed."""

PLAIN = PrivacyCurve({gaussian("5"): 2, gaussian("9"): 4})
BYPASSED = PrivacyCurve({gaussian("4"): 2}, (PATHS, PATHS))
PURE = PrivacyCurve({laplace("1/2"): 2, laplace("1/3", 2): 1})


def known(curve: PrivacyCurve) -> SpentDraw:
    return SpentDraw(Guarantee("zcdp", curve.rho), curve)


def unknown(rho: str) -> SpentDraw:
    return SpentDraw(Guarantee("zcdp", Fraction(rho)))


@pytest.mark.parametrize("curve", [PLAIN, BYPASSED, PURE])
def test_a_curve_is_read_as_it_was_written(curve: PrivacyCurve) -> None:
    assert read_curve(curve_text(curve)) == PrivacyCurve(curve.changed, list(curve.choices))
    assert curve_text(read_curve(curve_text(curve))) == curve_text(curve)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"kinds": [[2, "0", 1]], "changed": [[0, 1]], "choices": []}',
        '{"kinds": [[3, "1", 1]], "changed": [[0, 1]], "choices": []}',
        '{"kinds": [[2, "1/0", 1]], "changed": [[0, 1]], "choices": []}',
        '{"kinds": [], "changed": [[0, 1]], "choices": []}',
        '{"kinds": [[2, "1", 1]], "changed": [[0, -1]], "choices": []}',
        '{"kinds": [[2, "1", 1]], "changed": 3, "choices": []}',
    ],
)
def test_what_no_curve_is_written_as_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_curve(text)


def test_one_run_has_its_own_curve() -> None:
    assert Spending([known(PLAIN)]).epsilon(DELTA) == PLAIN.epsilon_upper(DELTA)


def test_two_runs_have_the_curve_of_all_counts() -> None:
    both = PrivacyCurve({gaussian("5"): 4, gaussian("9"): 8})
    found = Spending([known(PLAIN), known(PLAIN)]).epsilon(DELTA)
    assert found == pytest.approx(both.epsilon_upper(DELTA), abs=1e-9)
    assert epsilon_lower(both, DELTA) <= found < epsilon_tight(both.rho, DELTA)


def test_the_worst_paths_of_every_run_count() -> None:
    """Each run has a spine of its own, so that the paths of one tell nothing of another's."""
    found = Spending([known(BYPASSED), known(PLAIN), known(BYPASSED)]).epsilon(DELTA)
    fours = {gaussian("4"): 4, **PLAIN.changed}
    ways = [PrivacyCurve(fours, tuple((path,) for path in ends)) for ends in _fours(PATHS)]
    assert found == pytest.approx(max(way.epsilon_upper(DELTA) for way in ways), abs=1e-8)


def _fours(paths):
    return [(a, b, c, d) for a in paths for b in paths for c in paths for d in paths]


def test_draws_without_a_curve_are_added_by_their_epsilon() -> None:
    part = DELTA * PART
    spending = Spending([known(PLAIN), unknown("1/1000000")])
    expected = PLAIN.epsilon_upper(DELTA - part) + epsilon_tight(Fraction(1, 10**6), part)
    assert spending.epsilon(DELTA) == pytest.approx(expected, rel=1e-11)
    assert spending.epsilon(DELTA) < epsilon_tight(spending.total.parameter, DELTA)
    # Where they are many, the conversion of the whole rho is better.
    many = Spending([known(PLAIN), unknown("1")])
    assert many.epsilon(DELTA) == epsilon_tight(many.total.parameter, DELTA)


def test_own_deltas_are_left_out_of_the_curve() -> None:
    with_delta = SpentDraw(Guarantee("pure_dp", Fraction(1, 5), delta=DELTA / 2))
    spending = Spending([known(PLAIN), with_delta])
    assert spending.epsilon(DELTA) > Spending([known(PLAIN)]).epsilon(DELTA)
    assert spending.epsilon(DELTA / 2) == math.inf
    assert not spending.is_within(Fraction(10**6), DELTA / 2)


@pytest.mark.parametrize(("neighbors", "epsilon"), [("bounded", 1), ("unbounded", 2)])
def test_pure_draws_have_the_curve_of_any_such_mechanism(neighbors: str, epsilon: int) -> None:
    pure = SpentDraw(Guarantee("pure_dp", Fraction(1), neighbors))
    assert Spending([pure]).epsilon(DELTA) == pytest.approx(epsilon, rel=1e-8)
    many = Spending([pure] * 50).epsilon(DELTA)
    assert many == PrivacyCurve({laplace(Fraction(epsilon)): 50}).epsilon_upper(DELTA)
    assert many < epsilon_tight(Spending([pure] * 50).total.parameter, DELTA)


def test_a_change_of_several_records_has_no_curve_of_one() -> None:
    several = SpentDraw(Guarantee("pure_dp", Fraction(1), "several_records"))
    assert several.known is None


def test_a_curve_of_more_rho_than_is_charged_is_refused() -> None:
    with pytest.raises(ValueError, match="more rho than the guarantee"):
        SpentDraw(Guarantee("zcdp", PLAIN.rho * Fraction(99, 100)), PLAIN)


def test_more_choices_than_are_compared_leave_rho() -> None:
    many = tuple({gaussian(str(s)): 1} for s in range(2, 20))
    wide = PrivacyCurve({}, (many, many))
    spending = Spending([known(wide), known(wide)])
    assert spending.epsilon(DELTA) == epsilon_tight(2 * wide.rho, DELTA)
    assert spending.unknown == wide.rho
    with pytest.raises(ValueError, match="combinations"):
        compose_curves([wide, wide])


def test_where_not_all_choices_are_compared_the_largest_draws_have_their_curve() -> None:
    """Those of one choice cost nothing to compare, and stay; of the others the small one leaves."""
    many = [{gaussian(str(s)): 1} for s in range(2, 30)]
    large = PrivacyCurve({}, (many, many))
    small = PrivacyCurve({}, ([{gaussian(str(10**6 * s)): 1} for s in range(2, 30)],))
    spending = Spending([known(small), known(PLAIN), known(large)])
    assert spending.curve.rho == large.rho + PLAIN.rho and spending.unknown == small.rho
    part = DELTA * PART
    expected = compose_curves([PLAIN, large]).epsilon_upper(DELTA - part)
    expected += epsilon_tight(small.rho, part)
    assert spending.epsilon(DELTA) == pytest.approx(expected, rel=1e-9)
    assert expected < epsilon_tight(spending.total.parameter, DELTA)


def test_pure_noise_beside_gaussian_noise_has_the_epsilon_at_which_its_losses_end() -> None:
    """Most of rho is of one loss of 9/7 at most, and no guess by rho is near."""
    curve = PrivacyCurve({gaussian("161/6"): 2, laplace("3/7", 3): 1})
    upper, lower = curve.epsilon_upper(DELTA), epsilon_lower(curve, DELTA)
    assert lower <= upper < lower + 1e-3
    assert upper == pytest.approx(2.90003, abs=1e-5)
    assert upper < epsilon_tight(curve.rho, DELTA) / 3


COUNTS = st.dictionaries(
    st.one_of(
        st.builds(gaussian, st.fractions(Fraction(1, 2), 30, max_denominator=7), st.integers(1, 2)),
        st.builds(laplace, st.fractions(Fraction(1, 7), 1, max_denominator=7), st.integers(1, 3)),
    ),
    st.integers(1, 3),
    min_size=1,
    max_size=2,
)

DRAWS = st.lists(
    st.one_of(
        st.builds(lambda counts: known(PrivacyCurve(counts)), COUNTS),
        st.builds(
            lambda rho: SpentDraw(Guarantee("zcdp", rho)),
            st.fractions(Fraction(1, 10**6), 1, max_denominator=10**6),
        ),
        st.builds(
            lambda epsilon, neighbors: SpentDraw(Guarantee("pure_dp", epsilon, neighbors)),
            st.fractions(Fraction(1, 20), 2, max_denominator=20),
            st.sampled_from(["bounded", "unbounded", "several_records"]),
        ),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(DRAWS, st.integers(2, 12))
def test_the_epsilon_is_never_above_that_of_the_summed_rho(draws, digits: int) -> None:
    spending, delta = Spending(draws), Fraction(1, 10**digits)
    by_rho = epsilon_tight(spending.total.parameter, delta)
    found = spending.epsilon(delta)
    assert found <= by_rho
    # It is never below that of the known draws alone, and does not depend on their order.
    if spending.curve is not None:
        assert found >= min(by_rho, epsilon_lower(spending.curve, delta)) - 1e-9
    assert Spending(draws[::-1]).epsilon(delta) == pytest.approx(found, rel=1e-9)


BETWEEN_LARGE_LOSSES = [
    known(PrivacyCurve({gaussian("179/6"): 1, laplace("2/3", 2): 2})),
    known(PrivacyCurve({laplace("6/7", 2): 2})),
    SpentDraw(Guarantee("zcdp", Fraction(1, 10**6))),
]
"""Whose law about an epsilon of 9.7 says that delta is 1 there, though the epsilon is 6.7."""


@settings(max_examples=15, deadline=None)
@given(DRAWS, st.integers(2, 12))
@example(BETWEEN_LARGE_LOSSES, 5)
def test_one_look_decides_as_the_epsilon_does(draws, digits: int) -> None:
    spending, delta = Spending(draws), Fraction(1, 10**digits)
    found, least = Fraction(spending.epsilon(delta)), Fraction(1, 1000)
    assert spending.is_within(max(found, least) * Fraction(1001, 1000), delta)
    assert found < least or not spending.is_within(found * Fraction(999, 1000), delta)
