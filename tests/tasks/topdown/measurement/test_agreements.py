"""Least and most of records that agree: whatever is released, and however sums are split, areas
have a solution, and no sum is excluded that has one."""

from __future__ import annotations

import itertools
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.census import PRESETS, compiled, preset_census
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.topdown.measurement.public_answers import agreement

AGREES = np.array([False, True])


@st.composite
def released(draw) -> tuple[np.ndarray, np.ndarray, int]:
    """Persons and units of up to four blocks, at most so many persons per unit, and that most."""
    most = draw(st.integers(1, 3))
    total = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    persons = [draw(st.integers(0, most * units)) for units in total]
    return np.array(persons), np.array(total), most


@given(released())
def test_sums_within_limits_are_those_that_areas_can_have(drawn) -> None:
    persons, total, most = drawn
    low, high = agreement(persons, total, most, AGREES)
    possible = [
        [o for o in range(t + 1) if o <= n <= most * o] for n, t in zip(persons, total, strict=True)
    ]
    sums = {sum(chosen) for chosen in itertools.product(*possible)}
    assert sums == set(range(int(low[:, 1].sum()), int(high[:, 1].sum()) + 1))


def test_the_preset_declares_it_and_follows_it_only_when_asked() -> None:
    (agreed,) = preset_census("cef_2020").universes["units"].agreements
    assert (agreed.universe, agreed.at_most) == ("persons", 99999)
    assert not preset_census("cef_2020").without_agreements.universes["units"].agreements
    assert preset_census("cef_2020").universes["units"].needs == ("persons",)
    assert preset_census("cef_2020").without_agreements.universes["units"].needs == ()
    assert preset_census("cef_2020").universes["persons"].accompanied is not None
    assert preset_census("cef_2020").without_agreements.universes["persons"].accompanied is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"at_most": 3}, "needs a bound on these records of 'persons' of at most 3 per 'units'"),
        ({"where": {"occupancy": ["occupied", "vacant"]}}, "one whole answer"),
        ({"universe": "facilities"}, "declare 'facilities' before"),
        ({"of": {}}, "needs a bound"),
    ],
)
def test_what_could_leave_no_solution_is_refused(change, reason) -> None:
    tree = tomllib.loads((PRESETS / "cef_2020.toml").read_text(encoding="utf-8"))
    tree["universes"]["units"]["agree"][0] |= change
    with pytest.raises(ValueError, match=reason):
        compiled(CensusDeclaration.model_validate(tree))
