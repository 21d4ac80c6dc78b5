"""Exact privacy curves of all products as data frames: those of the products' own curves."""

from __future__ import annotations

from pathlib import Path

import pytest
import spineflow
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import public_plan
from spineflow.tasks.group_sizes.workload.exact_loss import exact_curve
from spineflow.tasks.products.privacy_curves import trade_off
from spineflow.tasks.products.registry import known
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.small_runs import settings_files


@pytest.mark.parametrize("loss", ["rho", "epsilon"])
def test_every_product_has_its_curve_and_its_trade_off(tmp_path: Path, loss: str) -> None:
    """Between the product's own neighbours; those of group sizes as their settings say."""
    write_dataset(tmp_path, census_like(groups=90, counties=4, states=2, largest=9))
    file = tmp_path / "settings.toml"
    file.write_text(file.read_text().replace('epsilon = "1"', f'{loss} = "1"'))
    frame = spineflow.privacy_curve("group-sizes", file)
    curve = exact_curve(public_plan(known("group-sizes").load(file)))
    exact = [curve.delta_upper(e) for e in frame["epsilon"]]
    assert frame["upper"].tolist() == pytest.approx(exact, rel=1e-3)
    assert (frame["lower"] <= frame["upper"]).all() and set(frame["universe"]) <= {"groups"}
    assert len(frame) > 2 or loss == "epsilon"
    told = spineflow.guarantee("group-sizes", file).iloc[0]
    if loss == "epsilon":
        assert told["epsilon"] == 1
    else:
        exact = curve.epsilon_upper(told["delta"])
        assert told["exact_epsilon"] == pytest.approx(exact, rel=1e-3)
    tests = spineflow.trade_off("group-sizes", file)
    assert tests["false_negatives"].tolist() == trade_off(curve).false_negatives.tolist()


def test_trips_and_both_passes_of_detailed_groups_have_curves(
    tmp_path: Path, groups_input: Path
) -> None:
    small = CountrySize(regions=2, provinces=3, municipalities=9, pairs=40, commuters=400)
    generate_country(tmp_path, small)
    trips = spineflow.trade_off("trips", tmp_path / "settings.toml")
    assert set(trips["universe"]) == {"trips"}
    groups = {"input": {"parameters": f"{groups_input}/params", "data": f"{groups_input}/data"}}
    passes = spineflow.trade_off("detailed-groups", groups | {"privacy": {"dataset": "d"}})
    assert list(dict.fromkeys(passes["universe"])) == ["US pass", "PR pass"]
    for frame in (trips, passes):
        assert (frame["false_negatives"] <= 1 - frame["false_positives"] + 1e-12).all()
        assert frame["false_negatives"].max() > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "universes"),
    [
        ("detailed-households", {"US pass"}),
        ("supplemental-dhc", {"people_in_households"}),
    ],
)
def test_products_of_households_have_curves(tmp_path: Path, name: str, universes: set[str]) -> None:
    frame = spineflow.privacy_curve(name, settings_files(tmp_path)[name])
    assert set(frame["universe"]) == universes and len(frame) > 2
    assert (frame["lower"] <= frame["upper"]).all() and frame["upper"].max() > 0


@pytest.mark.parametrize("function", ["privacy_curve", "trade_off"])
def test_where_nothing_is_known_a_sentence_says_so(tmp_path: Path, function: str) -> None:
    write_dataset(tmp_path, census_like(groups=90, counties=4, states=2, largest=9))
    file = tmp_path / "settings.toml"
    file.write_text(file.read_text().replace('epsilon = "1"', "infinite = true"))
    with pytest.raises(spineflow.SpineflowError, match="group-sizes has an exact curve"):
        getattr(spineflow, function)("group-sizes", file)
