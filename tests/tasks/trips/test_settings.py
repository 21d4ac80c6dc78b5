"""Settings that do nothing beside the others are refused, and taken from runs that have begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.settings import TripsSettings

TABLE = """
[input]
table = "t.csv"
levels = ["a", "b"]
areas = "v.csv"
[privacy]
dataset = "d"
epsilon = "1"
delta = "1e-8"
"""
PAIR = 'trips = "t.csv"\norigin = "a"\ndestination = "b"'
TRIPS = TABLE.replace('table = "t.csv"', PAIR).replace('levels = ["a", "b"]\n', "")


def load(folder: Path, text: str, *overrides: str) -> TripsSettings:
    path = folder / "settings.toml"
    path.write_text(text)
    return load_settings(TripsSettings, path, presets=folder, overrides=overrides)


IDLE = {
    ("mechanism.name=gaussian_leaves", "mechanism.shares=optimised"): "mechanism.shares",
    ("mechanism.name=stability_histogram", "mechanism.shares=optimised"): "mechanism.shares",
    ("mechanism.name=gaussian_leaves", "mechanism.tree=origin"): "mechanism.tree",
    (
        "mechanism.name=gaussian_leaves",
        "mechanism.remove_small_values=last",
    ): "mechanism.remove_small_values",
    ("mechanism.name=tda_chebyshev", "mechanism.remove_small_values=last"): "remove_small_values",
    ("mechanism.share_ratio='1/2'",): "mechanism.share_ratio",
    ("mechanism.projection=euclidean",): "mechanism.projection",
    ("mechanism.most_nodes=5",): "mechanism.most_nodes",
    ("privacy.distinct_trips=true",): "privacy.distinct_trips",
}


@pytest.mark.parametrize("overrides", IDLE, ids=" ".join)
def test_settings_that_do_nothing_are_refused(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    with pytest.raises(InputRefused, match=rf"{IDLE[overrides]} does nothing .*remove it"):
        load(tmp_path, TRIPS, *overrides)


def test_the_tree_of_a_table_follows_from_its_levels(tmp_path: Path) -> None:
    load(tmp_path, TABLE)
    with pytest.raises(InputRefused, match=r"mechanism.tree does nothing without input.trips"):
        load(tmp_path, TABLE, "mechanism.tree=origin")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("privacy.conversion=tight", "mechanism.name=stability_histogram"), "nothing is turned"),
        (("privacy.excess_trips=dropped",), "needs input.person"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, overrides, sentence: str) -> None:
    with pytest.raises(InputRefused, match=sentence):
        load(tmp_path, TRIPS, *overrides)
