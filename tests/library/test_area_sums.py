"""Sums of detailed groups over areas that were not tabulated, against the released rows."""

from __future__ import annotations

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> spineflow.Run:
    """A seeded run of detailed groups in twelve tracts."""
    folder = tmp_path_factory.mktemp("area-sums")
    generate_specification(folder / "params", states=["44"])
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=3000, tracts=12, states=["44"], seed=2)
    files = {"parameters": folder / "params", "data": folder / "data", "confidential": False}
    own = {"input": files, "privacy": {"dataset": "groups", "seed": 3}}
    return spineflow.detailed_groups({}, own, folder / "run")


def tracts(groups: spineflow.Run) -> list[str]:
    measured = groups.measurements()
    return sorted(measured.loc[measured["geolevel"] == "TRACT", "region_id"].unique())


@pytest.mark.slow
def test_sums_are_of_released_counts_and_say_what_is_suppressed(groups: spineflow.Run) -> None:
    ids = tracts(groups)
    areas = pd.DataFrame(
        {"area": ["east"] * 3 + ["west"] * 4 + ["one"], "region": [*ids[:3], *ids[3:7], ids[0]]}
    )
    found = groups.make_intervals("total", areas=areas)
    released = groups.table("population_groups")
    released = released[(released["region_type"] == "TRACT") & (released["table"] == "T01001")]
    of = released.set_index(["region_id", "iteration_code"])
    measured = groups.measurements("TRACT")["iteration_code"].unique()
    assert sorted(found["iteration_code"].unique()) == sorted(measured)
    assert len(found) == 3 * len(measured)
    for row in found.itertuples():
        regions = areas.loc[areas["area"] == row.area, "region"]
        own = of.loc[[key for key in ((r, row.iteration_code) for r in regions) if key in of.index]]
        assert (row.regions, row.suppressed) == (len(regions), len(regions) - len(own))
        assert row.is_complete == (row.suppressed == 0)
        if len(own):
            assert row.count == own["count"].sum()
            assert row.variance == pytest.approx(own["variance"].sum())
            assert 0 < row.margin <= own["margin_if_cut"].sum() + len(own)
        else:
            assert row.count is pd.NA or pd.isna(row.count)
            assert pd.isna(row.margin) and pd.isna(row.variance)
    assert found["count"].isna().any() and found["is_complete"].any()
    wide = groups.make_intervals("total", areas=areas, level=0.99)
    both = found["count"].notna()
    assert (wide.loc[both, "margin"] > found.loc[both, "margin"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("areas", "words"),
    [
        ({"area": ["a"], "tract": ["1"]}, "no column 'region'"),
        ({"area": ["a"], "region": ["99"]}, "'99', which is no region of the run"),
        ({"area": ["a", "a"], "region": [0, 0]}, "twice"),
        ({"area": ["a", "a"], "region": [0, "44"]}, "several types"),
    ],
)
def test_areas_that_cannot_be_added_up_are_refused(
    groups: spineflow.Run, areas: dict[str, list[object]], words: str
) -> None:
    first = tracts(groups)[0]
    frame = pd.DataFrame(areas).replace({"region": {0: first}})
    with pytest.raises(spineflow.SpineflowError, match=words):
        groups.make_intervals("total", areas=frame)
