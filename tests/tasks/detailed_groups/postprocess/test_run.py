"""What the settings of a run ask of its postprocessing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.invariants import FACILITY_COLUMNS, inhabitable
from spineflow.tasks.detailed_groups.postprocess.run import coterminous_of, stages_of
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings


@pytest.mark.parametrize(
    ("mechanism", "stages"),
    [
        ({}, ("suppressed", "marginals")),
        ({"coterminous": True}, ("suppressed", "marginals", "coterminous")),
        ({"suppress_alone_above_combination": True}, ("suppressed", "marginals", "alone")),
    ],
)
def test_stages_that_are_asked_for(mechanism: dict, stages: tuple[str, ...]) -> None:
    settings = DetailedGroupsSettings.model_validate(
        {
            "input": {"parameters": "p", "data": "d"},
            "privacy": {"dataset": "d"},
            "mechanism": mechanism,
        }
    )
    assert stages_of(settings) == stages


def test_coterminous_regions_of_a_run(measured_groups) -> None:
    """Puerto Rico and the states are apart: no set has regions of both."""
    run, settings = measured_groups()
    us, pr = (coterminous_of(run, settings, name) for name in ("us", "pr"))
    assert all(kind.startswith("PR-") for kind in pr.number)
    assert not any(kind.startswith("PR-") for kind in us.number)
    assert pr.number["PR-STATE"] == {"72": pr.number["PR-COUNTY"]["72001"]}
    assert us.number["STATE"]["44"] == us.number["COUNTY"]["44001"]
    assert us.number["USA"] == {}


def test_inhabitable_blocks() -> None:
    invariants = pd.DataFrame(0, index=range(3), columns=["housing_units", *FACILITY_COLUMNS])
    invariants.loc[1, "housing_units"] = 2
    invariants.loc[2, FACILITY_COLUMNS[3]] = 1
    np.testing.assert_array_equal(inhabitable(invariants), [False, True, True])
