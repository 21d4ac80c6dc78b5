"""Figures for notebooks: what is drawn is what the frames say."""

from __future__ import annotations

import sys
from dataclasses import dataclass

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
