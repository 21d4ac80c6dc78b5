"""What `spineflow budget` tells of a specification."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.release.budget import costs_of
from spineflow.tasks.detailed_groups.settings import ExplorerSettings
from spineflow.tasks.detailed_groups.workload.parameters import (
    Parameters,
    read_parameters,
    read_specification,
)
from spineflow.tasks.products.budget import costs_to_json

NOTHING = ExplorerSettings()


@pytest.fixture(scope="module")
def production(shared) -> str:
    return str(shared / "data" / "safetab" / "spec_2020")


def report(folder: str, explorer: ExplorerSettings = NOTHING, *, infinite=False, **overrides):
    parameters = Parameters({"p": read_parameters(folder, overrides, infinite=infinite)})
    return costs_to_json(costs_of(parameters, read_specification(folder), explorer))


def test_production_budgets(production: str) -> None:
    found = report(production)
    assert list(found) == ["us", "pr"]
    assert found["us"]["native"] == {"neighbors": "unbounded", "rho": "618/125"}
    assert Fraction(found["us"]["rho"]) == 2 * Fraction("4.944")
    levels = {(item["region_type"], item["level"]): item for item in found["us"]["levels"]}
    for key, target, threshold in (
        (("USA", 2), 3, None),
        (("STATE", 1), 50, None),
        (("COUNTY", 2), 11, 21),
        (("TRACT", 1), 50, 93),
    ):
        assert levels[key]["margin_target"] == target
        assert levels[key]["suppression_threshold"] == threshold
        assert levels[key]["margin"] <= target
        assert levels[key]["stability"] == 9
    assert ("AIANNH", 1) not in levels
    json.dumps(found)


def test_budgets_for_targets(production: str) -> None:
    found = report(production, ExplorerSettings(margin=50, threshold=93))
    for item in found["us"]["levels"]:
        needed = item["needed_budget"]
        assert Fraction(needed["margin"]) == Fraction("0.008")
        assert round(Fraction(needed["margin_by_formula"]), 3) == Fraction("0.008")
        is_state = item["region_type"] in ("USA", "STATE")
        assert needed["threshold"] == (None if is_state else "1/125")
