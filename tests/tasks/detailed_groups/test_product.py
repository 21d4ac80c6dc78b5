"""What commands tell of detailed groups before a run, and what pages show of one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_specification
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS, DETAILED_HOUSEHOLDS
from spineflow.tasks.pages.document import Section, Table
from spineflow.tasks.runs.errors import InputRefused

INFINITE = ("input.confidential=false", "privacy.infinite=true")


def load(groups_input: Path, *overrides: str):
    tree = {
        "input": {
            "parameters": str(groups_input / "params"),
            "data": str(groups_input / "data"),
            "confidential": False,
        },
        "privacy": {"dataset": "groups"},
    }
    return DETAILED_GROUPS.load(tree, overrides)


def tables(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def test_a_budget_for_a_margin_is_told_of_a_measured_level(groups_input: Path) -> None:
    settings = load(groups_input)
    every = list(DETAILED_GROUPS.needed(settings, {"COUNTY:1": 30}))
    (told,) = [sentence for sentence in every if "stage 2" in sentence]
    assert told.startswith("An answer to level 1, stage 2 at COUNTY is within 30 of the truth")
    assert "with a probability of 95 % at rho " in told
    total, now = map(float, re.findall(r"rho (\S+) and these shares \(now (\S+)\)", told)[0])
    wanted = parameters_of(load(groups_input, "mechanism.margins.COUNTY.1=30"))
    budget = total / now * float(parameters_of(settings).budgets["p"]["COUNTY", 1])
    assert budget == pytest.approx(float(wanted.budgets["p"]["COUNTY", 1]), rel=0.02)
    with pytest.raises(InputRefused, match="--target COUNTY:9: name a measured level"):
        list(DETAILED_GROUPS.needed(settings, {"COUNTY:9": 30}))


def test_curves_are_of_every_pass(groups_input: Path) -> None:
    settings = load(groups_input)
    curves = DETAILED_GROUPS.curves(settings)
    parameters = parameters_of(settings)
    assert curves is not None and list(curves.rhos.values()) == [
        parameters.total_of(name) for name in parameters.passes
    ]
    assert all(curve is not None for curve in curves.exact.values())
    assert parameters.passes == ("us", "pr")
    assert DETAILED_GROUPS.curves(load(groups_input, "privacy.infinite=true")) is None


@pytest.fixture(scope="module")
def households(tmp_path_factory: pytest.TempPathFactory):
    """Function from overrides to settings of detailed households, whose input is not read."""
    folder = tmp_path_factory.mktemp("households")
    generate_specification(folder, run_pr=True, households=True)
    tables = dict.fromkeys(("persons", "units", "geography", "groups"), "t")
    tree = {"input": {"parameters": str(folder), **tables}, "privacy": {"dataset": "d"}}
    return lambda *overrides: DETAILED_HOUSEHOLDS.load(tree, overrides)


def test_a_budget_for_a_margin_is_told_of_a_tabulation_and_level(households) -> None:
    settings = households()
    (told,) = DETAILED_HOUSEHOLDS.needed(settings, {"T3:COUNTY:1": 20})
    assert told.startswith("An answer to t3, level 1 at COUNTY is within 20 of the truth")
    with pytest.raises(InputRefused, match="--target T9:COUNTY:1: name a measured level"):
        list(DETAILED_HOUSEHOLDS.needed(settings, {"T9:COUNTY:1": 20}))
    assert DETAILED_HOUSEHOLDS.curves(settings) is not None
    assert DETAILED_HOUSEHOLDS.curves(households(*INFINITE)) is None
