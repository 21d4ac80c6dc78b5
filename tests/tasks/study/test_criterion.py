"""What a criterion is about: the figure of a replicate, and when it is good enough."""

from __future__ import annotations

import pandas as pd
import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.study.settings import Criterion
from spineflow.tasks.study.trials import Figures

ERRORS = pd.DataFrame(
    [
        ("persons", "total population", "all", "county", "all", 1.0, 10.0),
        ("persons", "total population", "all", "county", "0-49", 2.0, 20.0),
        ("persons", "total population", "all", "tract", "all", 3.0, 30.0),
        ("persons", "hispanic", "all", "county", "all", 4.0, 40.0),
        ("persons", "hispanic", "yes", "county", "all", 5.0, 50.0),
        ("units", "total population", "all", "county", "all", 6.0, 60.0),
    ],
    columns=[
        *("universe", "quantity", "answer", "level", "size_class"),
        *("mean_absolute_error", "largest"),
    ],
)


FIGURES = Figures(ERRORS, lambda: 0.75)


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ({}, 1.0),
        ({"size_class": "0-49"}, 2.0),
        ({"level": "tract"}, 3.0),
        ({"quantity": "hispanic"}, 4.0),
        ({"quantity": "hispanic", "answer": "yes"}, 5.0),
        ({"universe": "units"}, 6.0),
        ({"universe": "units", "statistic": "largest"}, 60.0),
    ],
)
def test_an_error_is_that_of_the_row_that_is_asked_for(asked: dict, value: float) -> None:
    assert Criterion(kind="error", **asked).value_of(FIGURES) == value


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"statistic": "median"}, "criterion.statistic: there is no 'median'"),
        ({"universe": "homes"}, "criterion.universe: .* no 'homes' here; there are persons, units"),
        ({"universe": "units", "quantity": "hispanic"}, "quantity: .* there are total population"),
        ({"quantity": "hispanic", "level": "tract"}, "level: .* 'tract' here; there are county"),
        ({"answer": "no"}, "criterion.answer: .* 'no' here; there are all"),
        ({"level": "tract", "size_class": "0-49"}, "size_class: .* there are all"),
    ],
)
def test_what_no_row_is_about_is_refused(asked: dict, told: str) -> None:
    with pytest.raises(InputRefused, match=told):
        Criterion(kind="error", **asked).value_of(FIGURES)


def test_a_share_is_met_from_its_value_on_and_an_error_up_to_it() -> None:
    share = Criterion(kind="redistricting", share="9/10")
    assert [share.is_met(value) for value in (0.89, 0.9, 0.91)] == [False, True, True]
    error = Criterion(kind="error", at_most=2.0)
    assert [error.is_met(value) for value in (1.9, 2.0, 2.1)] == [True, True, False]
    assert Criterion(kind="error").is_met(1e9)
