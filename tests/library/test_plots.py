"""Figures for notebooks: what is drawn is what the frames say."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
import spineflow

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

PL94 = {
    "preset": "pl94_2020_us",
    "input": {"persons": "p", "units": "u", "geography": "g"},
    "privacy": {"dataset": "d"},
}


@pytest.mark.slow
def test_bars_of_a_budget_add_to_one() -> None:
    budget = spineflow.budget("topdown", PL94)
    axes = spineflow.plot_budget(budget)
    widths = sum(patch.get_width() for patch in axes.patches)
    assert widths == pytest.approx(2.0)
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows[0] == "persons, US" and "units, Block" in rows
    longest = max(patch.get_x() + patch.get_width() for patch in axes.patches)
    of_level = budget.groupby(["universe", "geolevel"])["share"].sum()
    assert longest == pytest.approx(of_level.max())


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
    with pytest.raises(spineflow.SpineflowError, match="Errors of topdown"):
        spineflow.plot_errors(errors.drop(columns="query"))


@pytest.mark.slow
def test_margins_reach_as_far_as_their_intervals(town_folder: Path) -> None:
    run = spineflow.open_run(town_folder / "run")
    axes = run.plot_margins("AGE_SEX")
    margins, table = run.margins("AGE_SEX"), run.table("AGE_SEX")
    (lines,) = axes.collections
    ends = [segment[:, 0].tolist() for segment in lines.get_segments()]
    reach = margins[["lower", "upper"]].sub(table["count"], axis=0)
    assert ends == reach.to_numpy(dtype=float)[:30].tolist()
    assert axes.get_yticklabels()[0].get_text() == (
        f"region, N, female, child: {table['count'][0]:,}"
    )
    assert run.plot_budget(axes) is axes


@pytest.mark.slow
def test_lines_of_a_privacy_curve_are_its_bounds_and_the_conversion() -> None:
    frame = spineflow.privacy_curve("topdown", PL94)
    assert list(frame) == ["universe", "epsilon", "upper", "lower", "conversion"]
    assert (frame["lower"] <= frame["upper"]).all() and (frame["upper"] < frame["conversion"]).all()
    lines = spineflow.plot_privacy_curve(frame).get_lines()
    assert [line.get_label() for line in lines[:3]] == [
        "persons, by rho",
        "persons, exactly, at most",
        "persons, exactly, at least",
    ]
    persons = frame[frame["universe"] == "persons"]
    assert list(lines[1].get_xdata()) == persons["epsilon"].tolist()
    assert list(lines[1].get_ydata()) == persons["upper"].tolist()


@pytest.mark.slow
def test_lines_of_a_trade_off_are_its_false_negatives() -> None:
    frame = spineflow.trade_off("topdown", PL94)
    axes = spineflow.plot_trade_off(frame)
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["persons", "units", "by guessing"]
    units = frame[frame["universe"] == "units"]
    assert list(lines[1].get_ydata()) == units["false_negatives"].tolist()
    assert spineflow.plot_trade_off(frame, axes) is axes


def test_without_noise_no_curve_is_drawn() -> None:
    bare = PL94 | {
        "input": PL94["input"] | {"confidential": False},
        "privacy": {"dataset": "d", "infinite": True},
    }
    with pytest.raises(spineflow.SpineflowError, match="has an exact curve"):
        spineflow.privacy_curve("topdown", bare)


def test_without_matplotlib_a_sentence_tells_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(spineflow.SpineflowError, match=r"spineflow\[plots\]"):
        spineflow.plot_budget(spineflow.budget("topdown", PL94))
