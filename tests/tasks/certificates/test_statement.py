"""The frame of all certificates: losses in words, and numbers as the field writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.certificates.statement import Loss, Statement, guarantee_section
from spineflow.tasks.ledger.accounting import PURE_DP, UNBOUNDED, ZCDP, Guarantee
from spineflow.tasks.pages.document import Document, to_html, to_markdown
from spineflow.tasks.pages.numbers import shown_delta, shown_epsilon, shown_rho


def text_of(*losses: Loss, **further) -> str:
    section = guarantee_section(Statement(None, ("P.",), ("C.",), losses, **further))
    return to_markdown(Document("", (), (section,)))


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=1, max_denominator=10**30))
def test_delta_is_never_shown_smaller_than_it_is(delta: Fraction) -> None:
    if delta > 0:
        shown = Fraction(shown_delta(delta))
        assert delta <= shown <= delta * Fraction(102, 100)


def test_numbers_have_the_style_of_the_field() -> None:
    assert [shown_delta(text) for text in ("1/10000000000", "9/10", "1/3", None)] == [
        "1e-10",
        "0.9",
        "0.334",
        "0",
    ]
    assert [shown_epsilon(value) for value in (17.1405, 1.1, 0.5, "inf")] == [
        "17.14",
        "1.10",
        "0.5",
        "inf",
    ]
    assert shown_rho("1/3") == "1/3 (about 0.3333)"


def test_an_own_delta_is_told_and_added_to_that_of_the_conversion() -> None:
    exact = text_of(Loss("a", "discrete_gaussian", Guarantee(ZCDP, Fraction(1))))
    assert "fail altogether" not in exact and "| 0 |" in exact
    delta = Guarantee(PURE_DP, Fraction(2), UNBOUNDED, Fraction(1, 10**8))
    text = text_of(Loss("trips", "discrete_laplace", delta))
    assert "fail altogether" in text and "| 1e-8 |" in text
    assert "one record added or removed" in text and "epsilon 2" in text
    assert "| 8 |" in text, "2 epsilon^2 of bounded zCDP"
    both = Guarantee(ZCDP, Fraction(1), delta=Fraction(1, 10**10))
    assert "| 2e-10 |" in text_of(Loss("a", "discrete_gaussian", both))


def test_warnings_and_sums_stand_only_where_they_are_given() -> None:
    loss = Loss("a", "discrete_gaussian", Guarantee(ZCDP, Fraction(1)))
    assert "Warning" not in text_of(loss)
    text = text_of(loss, together="They add up.", warnings=("mind this",))
    assert "They add up." in text and "Warning: mind this." in text


@pytest.mark.parametrize("render", [to_html, to_markdown])
def test_no_guarantee_is_said_in_one_sentence(render) -> None:
    section = guarantee_section(Statement("noise was switched off", (), (), ()))
    text = render(Document("", (), (section,)))
    assert "Nothing is guaranteed: noise was switched off." in text
    assert "rho" not in text and "epsilon" not in text.replace("epsilon (", "")
