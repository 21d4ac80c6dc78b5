"""What `spineflow budget` tells of a specification."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.release.budget import costs_of
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.products.budget import costs_to_json


@pytest.fixture(scope="module")
def production(shared) -> str:
    return str(shared / "data" / "safetab" / "spec_2020")


def test_production_budgets(production: str) -> None:
    parameters = read_parameters(production, {})
    found = costs_to_json(costs_of(parameters, read_specification(production)))
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
        assert levels[key]["suppression_threshold"] == threshold
        assert levels[key]["margin"] <= target
        assert levels[key]["stability"] == 9
    assert ("AIANNH", 1) not in levels
    json.dumps(found)
