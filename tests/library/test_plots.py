"""Figures for notebooks: what is drawn is what the frames say."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.group_sizes.costs import exact_curve
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import public_plan
from spineflow.tasks.products.privacy_curves import trade_off
from spineflow.tasks.products.registry import find_product
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.small_runs import settings_files

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

PL94 = {
    "preset": "pl94_2020_us",
    "input": {"persons": "p", "units": "u", "geography": "g"},
    "privacy": {"dataset": "d"},
}


def test_lines_of_errors_are_the_errors() -> None:
    errors = pd.DataFrame(
        {
            "universe": "homes",
            "geolevel": ["nation", "town", "nation", "town"],
            "query": ["total", "total", "tenure", "tenure"],
            "mean_absolute_error": [0.0, 2.0, 1.0, 4.0],
        }
    )
    lines = spineflow.plot_errors(errors).get_lines()
    assert [line.get_label() for line in lines] == ["total", "tenure"]
    assert list(lines[1].get_ydata()) == [1.0, 4.0] and lines[0].get_ydata()[0] > 0
    with pytest.raises(spineflow.SpineflowError, match="errors of topdown"):
        spineflow.plot_errors(errors.drop(columns="query"))


def test_without_matplotlib_a_sentence_tells_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(spineflow.SpineflowError, match=r"spineflow\[plots\]"):
        spineflow.plot_budget(spineflow.budget("topdown", PL94))


@dataclass(frozen=True)
class Released:
    """A release with one table, as frames."""

    released: pd.DataFrame
    limits: pd.DataFrame

    def table(self, name: str) -> pd.DataFrame:
        """The table."""
        return self.released

    def margins(self, name: str) -> pd.DataFrame:
        """Its margins."""
        return self.limits


def ends_of(axes) -> list[list[float]]:
    (lines,) = axes.collections
    return [segment[:, 0].tolist() for segment in lines.get_segments()]


def test_margins_of_a_redistricting_table_are_those_of_one_count() -> None:
    released = pd.DataFrame(
        {"GEOID": ["g1", "g2"], "GEOCODE": ["1", "2"], "P1": [10, 2000], "P2": [4, 5]}
    )
    limits = released[["GEOID", "GEOCODE"]].assign(
        P1_LOWER=[8, 1990], P1_UPPER=[11, 2001], P2_LOWER=[0, 5], P2_UPPER=[9, 7]
    )
    run = Released(released, limits)
    axes = spineflow.plot_margins(run, "P")
    assert ends_of(axes) == [[-2.0, 1.0], [-10.0, 1.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1: 10", "2: 2,000"]
    assert ends_of(spineflow.plot_margins(run, "P", "P2")) == [[-4.0, 5.0], [0.0, 2.0]]
    with pytest.raises(spineflow.SpineflowError, match="no count 'P3'; it begins with P1"):
        spineflow.plot_margins(run, "P", "P3")


def test_curves_leave_zeros_out_and_have_the_colour_of_their_universe() -> None:
    frame = pd.DataFrame(
        {
            "universe": ["a", "a", "b"],
            "epsilon": [1.0, 2.0, 1.0],
            "upper": [0.5, 0.25, 0.125],
            "lower": [0.25, 0.0, 0.0625],
            "conversion": [0.75, 0.5, 0.25],
        }
    )
    axes = spineflow.plot_privacy_curve(frame)
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == [
        f"{name}, {how}"
        for name in ("a", "b")
        for how in ("by rho", "exactly, at most", "exactly, at least")
    ]
    assert list(lines["a, by rho"].get_ydata()) == [0.75, 0.5]
    assert list(lines["a, exactly, at most"].get_xdata()) == [1.0, 2.0]
    first, last = lines["a, exactly, at least"].get_ydata()
    assert first == 0.25 and last != last, "there is no place for 0 on a logarithmic scale"
    colours = {
        name: {tuple(line.get_color()) for key, line in lines.items() if key[0] == name}
        for name in "ab"
    }
    assert len(colours["a"]) == len(colours["b"]) == 1 and colours["a"] != colours["b"]
    assert axes.get_yscale() == "log" and axes.get_legend() is not None


@pytest.mark.parametrize("loss", ["rho", "epsilon"])
def test_every_product_has_its_curve_and_its_trade_off(tmp_path: Path, loss: str) -> None:
    """Between the product's own neighbours; those of group sizes as their settings say."""
    write_dataset(tmp_path, census_like(groups=90, counties=4, states=2, largest=9))
    file = tmp_path / "settings.toml"
    file.write_text(file.read_text().replace('epsilon = "1"', f'{loss} = "1"'))
    frame = spineflow.privacy_curve("group-sizes", file)
    curve = exact_curve(public_plan(find_product("group-sizes").load(file)))
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
