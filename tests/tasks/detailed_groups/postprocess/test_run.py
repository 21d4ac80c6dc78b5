"""What the settings of a run ask of its postprocessing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.invariants import FACILITY_COLUMNS, inhabitable
from spineflow.tasks.detailed_groups.postprocess import public_blocks, regions_of_pass, stages_of
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
    us, pr = (regions_of_pass(*public_blocks(run, settings), name)[1] for name in ("us", "pr"))
    assert all(kind.startswith("PR-") for kind in pr)
    assert not any(kind.startswith("PR-") for kind in us)
    assert pr["PR-STATE"] == {"72": pr["PR-COUNTY"]["72001"]}
    assert us["STATE"]["44"] == us["COUNTY"]["44001"]
    assert us["USA"] == {}


def test_inhabitable_blocks() -> None:
    invariants = pd.DataFrame(0, index=range(3), columns=["housing_units", *FACILITY_COLUMNS])
    invariants.loc[1, "housing_units"] = 2
    invariants.loc[2, FACILITY_COLUMNS[3]] = 1
    np.testing.assert_array_equal(inhabitable(invariants), [False, True, True])
