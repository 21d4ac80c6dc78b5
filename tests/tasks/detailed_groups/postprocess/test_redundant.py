"""Levels that measure the same people as another are named, with their cost and what ends it."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.postprocess import redundant_spending
from spineflow.tasks.detailed_groups.workload.parameters import Parameters
from spineflow.tasks.detailed_groups.workload.regions import REGION_TYPES

BUDGETS = (("USA", 1), ("STATE", 1), ("COUNTY", 1), ("COUNTY", 2), ("TRACT", 1))


def parameters(budgets=BUDGETS) -> Parameters:
    return Parameters(
        definition="zcdp",
        max_race_codes=8,
        stage_1_fraction=Fraction(1, 10),
        budgets={"p": dict.fromkeys(budgets, Fraction(1, 3))},
        thresholds={},
        zero_suppression_chance=None,
        allow_negative_counts=True,
        passes=("us",),
        states=("44",),
    )


def blocks(counties: list[str], tracts: list[str]) -> pd.DataFrame:
    n = len(counties)
    return pd.DataFrame(
        {
            "block_geocode": [
                f"44{c}{t}1{i:04d}" for i, (c, t) in enumerate(zip(counties, tracts, strict=True))
            ],
            "TABBLKST": ["44"] * n,
            "TABBLKCOU": counties,
            "TABTRACTCE": tracts,
            "PLACEFP": ["99999"] * n,
            "AIANNHCE": ["9999"] * n,
        }
    )


def settings(*, coterminous: bool):
    mechanism = SimpleNamespace(
        coterminous=coterminous, summary_levels=tuple(REGION_TYPES), units_are_invariant=False
    )
    return SimpleNamespace(mechanism=mechanism)


@pytest.mark.parametrize("coterminous", [True, False])
def test_a_nation_of_one_state_of_one_county(coterminous: bool) -> None:
    one_county = blocks(["001"] * 4, ["000100", "000100", "000200", "000200"])
    found = redundant_spending(settings(coterminous=coterminous), parameters(), one_county)
    named = [(sentence.split(" at ")[0], sentence.split('"0"')[1]) for sentence in found]
    assert named == [("STATE", " saves it"), ("COUNTY", " saves it")]
    assert ("discarded" in found[0]) == coterminous
    assert all("rho 1/3" in sentence for sentence in found)
    assert 'mechanism.budgets.COUNTY.1 = "0"' in found[1]


def test_levels_that_repeat_some_regions_only_are_left_out() -> None:
    """One county is one tract, the other is two: tracts are not measured in vain."""
    both = blocks(["001", "003", "003"], ["000100", "000200", "000300"])
    found = redundant_spending(settings(coterminous=True), parameters(), both)
    assert [sentence.split(" at ")[0] for sentence in found] == ["STATE"]


def test_another_level_of_iterations_repeats_nothing() -> None:
    one_county = blocks(["001"] * 2, ["000100", "000200"])
    only = parameters((("USA", 1), ("COUNTY", 2)))
    assert redundant_spending(settings(coterminous=True), only, one_county) == ()
