"""What the settings of a run ask of its postprocessing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.invariants import FACILITY_COLUMNS, inhabitable
from spineflow.tasks.detailed_groups.ingest.ingest import run_parameters
from spineflow.tasks.detailed_groups.postprocess.run import (
    coterminous_of,
    groups_to_release,
    pass_files,
    postprocess,
    stages_of,
    thresholds_of,
)
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


def test_thresholds_of_a_run(measured_groups) -> None:
    run, settings = measured_groups()
    thresholds = thresholds_of(run, run_parameters(run, settings).first)
    assert {thresholds[kind, 2] for kind in ("USA", "STATE", "PR-STATE")} == {None}
    assert all(
        threshold > 0 for (kind, _), threshold in thresholds.items() if "STATE" not in kind != "USA"
    )
    run, settings = measured_groups("privacy.infinite=true")
    thresholds = thresholds_of(run, run_parameters(run, settings).first)
    assert set(thresholds.values()) == {None, 0}


def test_coterminous_regions_of_a_run(measured_groups) -> None:
    """Puerto Rico and the states are apart: no set has regions of both."""
    run, settings = measured_groups()
    us, pr = (coterminous_of(run, settings, name) for name in ("us", "pr"))
    assert all(kind.startswith("PR-") for kind in pr.number)
    assert not any(kind.startswith("PR-") for kind in us.number)
    assert pr.number["PR-STATE"] == {"72": pr.number["PR-COUNTY"]["72001"]}
    assert us.number["STATE"]["44"] == us.number["COUNTY"]["44001"]
    assert us.number["USA"] == {}


def test_all_groups_come_through(measured_groups) -> None:
    run, settings = measured_groups()
    parameters = run_parameters(run, settings).first
    for region_pass in parameters.passes:
        for stage in stages_of(settings):
            postprocess(run, settings, region_pass, stage)
            assert pass_files(run, parameters, region_pass).are_there(stage)
    levels = list(parameters.budgets)
    found = list(groups_to_release(run, settings))
    assert [table["region_type"].unique().to_pylist() for table in found] == [
        [kind] for kind, _ in levels
    ]


def test_inhabitable_blocks() -> None:
    invariants = pd.DataFrame(0, index=range(3), columns=["housing_units", *FACILITY_COLUMNS])
    invariants.loc[1, "housing_units"] = 2
    invariants.loc[2, FACILITY_COLUMNS[3]] = 1
    np.testing.assert_array_equal(inhabitable(invariants), [False, True, True])
