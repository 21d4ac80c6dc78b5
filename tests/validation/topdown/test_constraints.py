from __future__ import annotations

import pytest
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.topdown.checks.expectations import cells_of
from spineflow.validation.topdown.constraints import constraint_margin, expected_sign


@pytest.mark.parametrize(
    ("schema", "name", "n_rows", "sign"),
    [
        (PERSONS, "total_con", 1, "="),
        (PERSONS, "state_total_con", 1, "="),
        (PERSONS, "hhgq_total_lb_con", 8, ">="),
        (PERSONS, "hhgq_total_ub_con", 8, "<="),
        (PERSONS, "hhinstlevels_total_lb_con", 3, ">="),
        (UNITS, "total_con", 1, "="),
    ],
)
def test_constraint_names_tell_query_and_sign(schema, name, n_rows, sign):
    assert constraint_margin(cells_of(schema), name).n_rows == n_rows
    assert expected_sign(name) == sign


@pytest.mark.parametrize("name", ["hhgq_total_lb", "weather_total_con", "hhgq_total_lb_con"])
def test_names_that_follow_no_rule_are_refused(name):
    with pytest.raises(ValueError, match="con|weather|hhgq"):
        constraint_margin(cells_of(UNITS), name)
