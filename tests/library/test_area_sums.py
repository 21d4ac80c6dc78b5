"""Sums of detailed groups over areas that were not tabulated, against the released rows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.flows.cli import main
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.noise.quantiles import margin_of_sum, margin_of_sums


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


@pytest.mark.slow
def test_other_queries_are_refused(groups: spineflow.Run, tmp_path: Path) -> None:
    file, out = tmp_path / "areas.csv", tmp_path / "sums.csv"
    file.write_text(f"area,region\nmine,{tracts(groups)[0]}\n")
    with pytest.raises(spineflow.SpineflowError, match="are added up over areas"):
        groups.make_intervals("sex", areas=file)
    asked = ["intervals", str(groups.path), "--query", "total"]
    assert main([*asked, "--entities", str(file), "--out", str(out)]) == 0
    assert len(spineflow.read_table(out)) == len(groups.make_intervals("total", areas=file))
    assert main([*asked, "--geolevel", "TRACT"]) == 2


def test_a_margin_of_several_noises_holds_what_one_noise_has() -> None:
    """Noise in two parts of one distribution is that of the whole; of two, it lies in between."""
    narrow, wide = (IntegerDistribution(Fraction(1, own), power=2) for own in (50, 800))
    coverage = Fraction(9, 10)
    assert margin_of_sums(((wide, 3), (wide, 2)), coverage) == margin_of_sum(wide, 5, coverage)
    mixed = margin_of_sums(((wide, 3), (narrow, 2)), coverage)
    assert margin_of_sum(wide, 3, coverage) <= mixed < margin_of_sum(wide, 5, coverage)
    cut = margin_of_sums(((wide, 3), (narrow, 2)), coverage, are_cut=True)
    assert mixed <= cut < 2 * mixed
