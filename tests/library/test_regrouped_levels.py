"""Where a spine groups areas anew, a level's name means the areas that were declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import spineflow
from spineflow.tasks.products.product import product
from spineflow.tasks.topdown.ingest.ingest import public_geography
from spineflow.tasks.topdown.release.spine_summary import spine_distances

from tests.library import towns

OWN = "region of the spine"


def areas() -> pd.DataFrame:
    """Twelve sections in four regions; wards lie across all regions."""
    number = np.arange(12)
    return pd.DataFrame(
        {
            "region": [f"R{n // 3}" for n in number],
            "section": [f"s{n:02}" for n in number],
            "ward": [f"w{n % 3}" for n in number],
        }
    )


def residents() -> pd.DataFrame:
    """The residents of `towns` in these sections."""
    return towns.residents().assign(
        section=np.random.default_rng(3).choice(areas()["section"], towns.RESIDENTS)
    )


def settings(spine: str) -> dict[str, object]:
    """Settings of a seeded run whose wards are off-spine entities."""
    own = towns.settings(
        input={"confidential": False},
        privacy={"dataset": "town", "seed": 5},
        geography={"spine": spine, "fanout_cutoff": 1} if spine == "optimized" else {},
    )
    own["census"]["geography"]["categories"] = {"ward": {"column": "ward"}}
    return own


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> spineflow.Run:
    """A run whose spine has groups of sections in place of regions."""
    folder = tmp_path_factory.mktemp("grouped")
    tables = {"residents": residents(), "areas": areas()}
    return spineflow.topdown(tables, settings("optimized"), folder / "run")


def test_a_level_that_the_spine_regroups_is_named_so(grouped: spineflow.Run) -> None:
    names = {"country", OWN, "section"}
    assert set(grouped.measurements()["geolevel"]) == names
    assert set(grouped.estimates()["geolevel"]) == names
    assert set(grouped.budget["geolevel"]) == names
    for read in (grouped.measurements, grouped.estimates):
        with pytest.raises(spineflow.SpineflowError, match=OWN):
            read("region")
    page = grouped.report.read_text(encoding="utf-8")
    assert page.count(OWN) > 5
    certificate = (grouped.path / "release" / "certificate.md").read_text(encoding="utf-8")
    assert OWN in certificate and "| region | " not in certificate


@pytest.mark.slow
def test_intervals_of_a_level_are_of_its_declared_areas(grouped: spineflow.Run) -> None:
    found = grouped.make_intervals("total", "region").set_index("geocode")
    sections = grouped.make_intervals("total", "section").set_index("geocode")
    region = (
        sections.index.str.rpartition(".")
        .get_level_values(2)
        .map(dict(zip(areas()["section"], areas()["region"], strict=True)))
    )
    expected = sections.groupby(region)["estimate"].sum()
    assert list(found.index) == ["R0", "R1", "R2", "R3"]
    np.testing.assert_allclose(found["estimate"], expected)
    assert (found["std_dev"] > 0).all()
    groups = grouped.make_intervals("total", OWN)
    assert set(groups["geocode"]) == set(grouped.measurements(OWN, query="total")["geocode"])
    with pytest.raises(spineflow.SpineflowError, match=f"no geolevel 'town'.*region, {OWN}"):
        grouped.make_intervals("total", "town")


def test_errors_of_a_level_are_of_its_declared_areas(grouped: spineflow.Run) -> None:
    errors = grouped.errors
    assert {"country", "region", OWN, "section"} <= set(errors["level"])
    table = grouped.table("AGE_SEX")
    released = table[table["level"] == "region"].groupby("code")["count"].sum()
    where = dict(zip(areas()["section"], areas()["region"], strict=True))
    true = residents()["section"].map(where).value_counts().sort_index()
    own = errors[(errors["level"] == "region") & (errors["quantity"] == "total")].iloc[0]
    assert own["entities"] == 4
    assert own["mean_absolute_error"] == pytest.approx(np.abs(released - true).mean())
    assert own["largest"] == np.abs(released - true).max()


@pytest.mark.slow
def test_deviations_are_predicted_for_declared_areas(
    grouped: spineflow.Run, tmp_path: Path
) -> None:
    """What public facts predict is what the intervals of the measurements have."""
    own = settings("optimized")
    loaded = product("topdown").load(own | {"input": {**own["input"], **_written(tmp_path)}})
    found = spine_distances(loaded, public_geography(loaded)).summaries
    (rows,) = (summary.tabulated for summary in found.values())
    rows = rows.set_index(["spine", "category"])
    assert set(rows.index) == {
        (spine, name) for spine in ("conventional", "optimized") for name in ("region", "ward")
    }
    for area, where in (("region", {"geolevel": "region"}), ("ward", {"areas": _wards()})):
        made = grouped.make_intervals("total", **where)["std_dev"]
        assert rows.loc[("optimized", area), "mean"] == pytest.approx(made.mean(), rel=0.02)
    assert rows.loc[("conventional", "region"), "mean"] < rows.loc[("optimized", "region"), "mean"]
    page = grouped.report.read_text(encoding="utf-8")
    assert "exceeds the noise of a larger" in page


def _written(folder: Path) -> dict[str, str]:
    """The tables as files."""
    areas().to_csv(folder / "areas.csv", index=False)
    residents().to_csv(folder / "residents.csv", index=False)
    return {name: str(folder / f"{name}.csv") for name in ("areas", "residents")}


def _wards() -> pd.DataFrame:
    return areas().rename(columns={"ward": "area", "section": "block"})[["area", "block"]]
