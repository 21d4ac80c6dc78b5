"""Figures for notebooks: what is drawn is what the frames say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import public_plan
from spineflow.tasks.group_sizes.measurement import exact_curve
from spineflow.tasks.products.privacy_curves import trade_off
from spineflow.tasks.products.product import find_product

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


def test_lines_of_errors_are_the_errors() -> None:
    errors = pd.DataFrame(
        {
            "universe": "homes",
            "level": ["nation", "town", "nation", "town"],
            "quantity": ["total", "total", "tenure", "tenure"],
            "mean_absolute_error": [0.0, 2.0, 1.0, 4.0],
        }
    )
    lines = spineflow.plot_errors(errors).get_lines()
    assert [line.get_label() for line in lines] == ["total", "tenure"]
    assert list(lines[1].get_ydata()) == [1.0, 4.0] and lines[0].get_ydata()[0] > 0
    with pytest.raises(spineflow.SpineflowError, match="errors of topdown"):
        spineflow.plot_errors(errors.drop(columns="quantity"))


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


@pytest.mark.parametrize("function", ["privacy_curve", "trade_off"])
def test_where_nothing_is_known_a_sentence_says_so(tmp_path: Path, function: str) -> None:
    write_dataset(tmp_path, census_like(groups=90, counties=4, states=2, largest=9))
    file = tmp_path / "settings.toml"
    file.write_text(file.read_text().replace('epsilon = "1"', "infinite = true"))
    with pytest.raises(spineflow.SpineflowError, match="group-sizes has an exact curve"):
        getattr(spineflow, function)("group-sizes", file)
