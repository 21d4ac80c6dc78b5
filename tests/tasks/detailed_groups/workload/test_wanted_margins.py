"""Wanted margins set the least budgets that meet them, and nothing else changes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.budgets import (
    LevelBudget,
    least_budget,
    level_budgets,
    refuse_missed_margins,
)
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.noise.quantiles import margin
from spineflow.tasks.products.product import find_product, product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import dump_settings, frozen_settings, load_settings

GAMMA = Fraction(1, 10)
TEXT = """\
[input]
parameters = "params"
data = "data"
[privacy]
dataset = "d"
[mechanism]
confidence = "9/10"
[mechanism.margins.TRACT]
2 = 7
[mechanism.margins.USA]
1 = 20
2 = 2
"""


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 200),
    st.booleans(),
    st.integers(1, 12),
    st.sampled_from(["0.5", "0.9", "0.95", "0.99"]),
)
def test_the_least_budget_meets_the_margin_and_less_does_not(
    due: int, is_pure: bool, stability: int, coverage: str
) -> None:
    level, asked = LevelBudget(Fraction(1), stability, GAMMA, is_pure), Fraction(coverage)
    found = least_budget(level, due, asked)
    assert margin(replace(level, budget=found).second_stage, asked) <= due
    less = found * (1 - Fraction(1, 10**4))
    assert margin(replace(level, budget=less).second_stage, asked) > due


def load(folder: Path, groups_input: Path, text: str = TEXT) -> DetailedGroupsSettings:
    for name in ("params", "data"):
        shutil.copytree(groups_input / name, folder / name, dirs_exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(text)
    return load_settings(DetailedGroupsSettings, file, presets=folder).resolved()


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_settings_hold_the_budgets_from_then_on(
    tmp_path: Path, groups_input: Path, definition: str
) -> None:
    text = TEXT.replace("confidence", f'definition = "{definition}"\nconfidence')
    settings = load(tmp_path, groups_input, text)
    before = read_parameters(str(groups_input / "params"), {})
    after = parameters_of(settings)
    for key, budget in after.budgets["p"].items():
        due = after.wanted.get(key)
        if due is None:
            assert budget == before.budgets["p"][key]
        else:
            assert settings.mechanism.budgets[key[0]][str(key[1])] == budget
    for region_pass in after.passes:
        for key, level in level_budgets(
            after, read_specification(settings.input.parameters), "p", region_pass
        ).items():
            if key in after.wanted:
                assert margin(level.second_stage, Fraction(9, 10)) <= after.wanted[key]
    (tmp_path / "frozen.toml").write_text(dump_settings(settings))
    shutil.rmtree(tmp_path / "params")
    assert frozen_settings(DetailedGroupsSettings, tmp_path / "frozen.toml") == settings


def test_a_budget_that_misses_its_margin_is_refused(tmp_path: Path, groups_input: Path) -> None:
    given = load(tmp_path, groups_input)
    least = given.mechanism.budgets["TRACT"]["2"]
    specification = read_specification(given.input.parameters)
    for budget, sentence in ((least, None), (least * Fraction(99, 100), str(least))):
        text = TEXT + f'[mechanism.budgets.TRACT]\n2 = "{budget}"\n'
        parameters = parameters_of(load(tmp_path, groups_input, text))
        assert parameters.budgets["p"]["TRACT", 2] == budget
        if sentence is None:
            refuse_missed_margins(parameters, specification)
            continue
        with pytest.raises(InputRefused) as refused:
            refuse_missed_margins(parameters, specification)
        assert "not within mechanism.margins.TRACT.2 = 7 with a probability of 90 %" in str(
            refused.value
        )
        assert sentence in str(refused.value)
        for load_it in (product("detailed-groups").load, find_product("detailed_groups").load):
            with pytest.raises(InputRefused, match="not within mechanism.margins.TRACT.2 = 7"):
                load_it(tmp_path / "settings.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("margins.TRACT", "margins.WARD", "mechanism.margins.WARD must be one of USA"),
        ("2 = 7", "3 = 7", "with the levels 1 and 2"),
        ("2 = 7", "2 = -7", "mechanism.margins.TRACT.2"),
        ('"9/10"', '"1"', "mechanism.confidence is 1; it must be positive and below 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, groups_input: Path, old: str, new: str, sentence: str
) -> None:
    text = TEXT.replace(old, new, 1)
    with pytest.raises(InputRefused) as refused:
        load(tmp_path, groups_input, text)
    assert sentence in str(refused.value)
