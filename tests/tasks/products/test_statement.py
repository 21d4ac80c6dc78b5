"""The frame of all certificates: losses in words, and numbers as the field writes them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.ledger.accounting import (
    BOUNDED,
    PURE_DP,
    UNBOUNDED,
    ZCDP,
    Guarantee,
    epsilon_tight,
)
from spineflow.tasks.ledger.plan import REPORT_DELTA
from spineflow.tasks.pages.document import Document, parts_of, to_html, to_markdown
from spineflow.tasks.pages.numbers import format_delta, format_epsilon, format_upper_bound
from spineflow.tasks.products.plan import (
    Statement,
    UniversePlan,
    combine_parts,
    losses_table,
    summarise_statement,
)


def guarantee(stated: Statement) -> Document:
    """The part of a certificate on what is guaranteed."""
    _, _, (section,) = parts_of(
        "products/templates/guarantee.md.j2",
        statement=stated,
        sentence=summarise_statement(stated),
        losses_table=losses_table,
    )
    return Document("", (), (section,))


def text_of(*losses: UniversePlan, **further) -> str:
    return to_markdown(guarantee(statement(*losses, **further)))


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=1, max_denominator=10**30))
def test_delta_is_never_shown_smaller_than_it_is(delta: Fraction) -> None:
    if delta > 0:
        shown = Fraction(format_delta(delta))
        assert delta <= shown <= delta * Fraction(102, 100)


@given(st.one_of(st.just(0.0), st.floats(1e-300, 1e9)))
def test_an_upper_bound_is_shown_upwards_in_the_same_digits(epsilon: float) -> None:
    shown = Fraction(format_upper_bound(epsilon))
    digit = Fraction(1, 100)
    if 0 < epsilon < 1:
        digit = Fraction(10) ** (math.floor(math.log10(epsilon)) - 2)
    assert Fraction(epsilon) <= shown < Fraction(epsilon) + digit * Fraction(1001, 1000)
    assert abs(shown - Fraction(format_epsilon(epsilon))) <= digit * Fraction(1001, 1000)


def test_an_own_delta_is_told_and_added_to_that_of_the_conversion() -> None:
    exact = text_of(UniversePlan("a", "discrete_gaussian", Guarantee(ZCDP, Fraction(1))))
    assert "fail altogether" not in exact and "| 0 |" in exact
    delta = Guarantee(PURE_DP, Fraction(2), UNBOUNDED, Fraction(1, 10**8))
    text = text_of(UniversePlan("trips", "discrete_laplace", delta))
    assert "fail altogether" in text and "| 1e-8 |" in text
    assert "one record added or removed" in text and "epsilon 2" in text
    assert "| 8 |" in text, "2 epsilon^2 of bounded zCDP"
    both = Guarantee(ZCDP, Fraction(1), delta=Fraction(1, 10**10))
    assert "| 2e-10 |" in text_of(UniversePlan("a", "discrete_gaussian", both))


@pytest.mark.parametrize("render", [to_html, to_markdown])
def test_no_guarantee_is_said_in_one_sentence(render) -> None:
    text = render(guarantee(Statement("noise was switched off", (), (), ())))
    assert "Nothing is guaranteed: noise was switched off." in text
    assert "rho" not in text and "epsilon" not in text.replace("epsilon (", "")


def statement(*losses: UniversePlan, **further) -> Statement:
    return Statement(None, ("P.",), ("C.",), losses, **further)


def loss(name: str, definition: str, parameter: int, neighbors: str = BOUNDED) -> UniversePlan:
    return UniversePlan(name, "any", Guarantee(definition, Fraction(parameter), neighbors))


def test_one_guarantee_combines_those_of_all_parts() -> None:
    zcdp = combine_parts(statement(loss("persons", ZCDP, 2), loss("units", ZCDP, 1)))
    assert (zcdp.universe, zcdp.guarantee) == ("persons and units", Guarantee(ZCDP, Fraction(3)))
    pure = combine_parts(statement(loss("a", PURE_DP, 2), loss("b", PURE_DP, 1)))
    assert pure.guarantee == Guarantee(PURE_DP, Fraction(3))
    mixed = combine_parts(statement(loss("a", PURE_DP, 2), loss("b", ZCDP, 1)))
    assert mixed.guarantee == Guarantee(ZCDP, Fraction(3)), "2^2 / 2 and 1"
    others = combine_parts(statement(loss("a", ZCDP, 1, UNBOUNDED), loss("b", ZCDP, 1)))
    assert others.guarantee == Guarantee(ZCDP, Fraction(5)), "groups of two cost four times rho"


def test_parts_that_share_nobody_cost_as_much_as_the_largest() -> None:
    passes = (loss("US", ZCDP, 2, UNBOUNDED), loss("PR", ZCDP, 1, UNBOUNDED))
    assert combine_parts(statement(*passes, are_disjoint=True)) == passes[0]
    text = summarise_statement(statement(*passes, are_disjoint=True))
    assert "adding or removing one record of any part" in text and "from a rho of 2)" in text


def test_the_guarantee_is_one_sentence_with_all_that_limits_it() -> None:
    text = summarise_statement(statement(loss("persons", ZCDP, 1)))
    epsilon = format_epsilon(epsilon_tight(1, REPORT_DELTA))
    assert f"factor of at most e^{epsilon}, except with probability 1e-10" in text
    assert text.count(". ") == 0 and text.endswith("from a rho of 1).")
    pure = summarise_statement(statement(loss("sizes", PURE_DP, 1)))
    assert "(epsilon 1.00)." in pure and "except" not in pure
    delta = Guarantee(PURE_DP, Fraction(2), UNBOUNDED, Fraction(1, 10**8))
    assert "with probability 1e-8" in summarise_statement(
        statement(UniversePlan("trips", "any", delta))
    )
    nothing = summarise_statement(Statement("noise was switched off", (), (), ()))
    assert nothing == "Nothing is guaranteed: noise was switched off."
    with pytest.raises(ValueError, match="guarantees nothing"):
        combine_parts(Statement("noise was switched off", (), (), ()))
