"""Accuracy of declared censuses: errors of levels and quantities that they declare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures
from spineflow.tasks.topdown.ingest.generate import generate_country
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tasks.topdown.declared import load, run_declared

REPOSITORY = Path(__file__).resolve().parents[5]
COUNTRY = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")

Run = tuple[RunDirectory, TopdownSettings]


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("country")
    (folder / "input").mkdir()
    generate_country(folder / "input")
    text = COUNTRY.replace('dataset = "demo-country"', 'dataset = "c"\nseed = 5')
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    settings = load(folder / "settings.toml")
    run, _ = run_declared(settings, folder / "run")
    return run, settings


@pytest.fixture(scope="module")
def errors(country: Run) -> pd.DataFrame:
    return compute_figures(*country).errors


def row(errors: pd.DataFrame, universe: str, quantity: str, level: str) -> pd.Series:
    found = errors.set_index(["universe", "quantity", "level", "answer", "size_class"])
    return found.loc[(universe, quantity, level, "all", "all")]


@pytest.mark.slow
def test_errors_are_those_of_the_released_rows(country: Run, errors: pd.DataFrame) -> None:
    """Counted from the microdata and the input by another library, of a column off the spine."""
    run, _ = country
    folder = run.root.parent / "input"
    areas = pd.read_csv(folder / "areas.csv", dtype=str)
    tenures = {"1": "owned", "2": "owned", "3": "rented", "9": "other", "": "other"}
    truth = pd.read_parquet(folder / "dwellings.parquet").merge(areas, on="section")
    truth["tenure"] = truth["tenure"].map(tenures)
    truth["size"] = np.select(
        [truth["rooms"] < 3, truth["rooms"] < 5], ["small", "medium"], "large"
    )
    released = pd.read_parquet(run.unchecked_release / "mdf_dwellings.parquet")
    for level in ("region", "municipality", "section"):
        keys = ["region", "municipality", "section"]
        keys = [*keys[: keys.index(level) + 1], "tenure", "size"]
        counts = pd.concat([frame.groupby(keys).size() for frame in (truth, released)], axis=1)
        counts = counts.fillna(0)
        entities = areas[keys[:-2]].drop_duplicates()
        found = row(errors, "dwellings", "detailed", level)
        assert found["entities"] == len(entities)
        expected = (counts[0] - counts[1]).abs().sum() / (9 * len(entities))
        assert found["mean_absolute_error"] == pytest.approx(expected)
        assert found["on_spine"]
    schools = set(errors["level"])
    assert {"country", "school"} <= schools
    assert not row(errors, "persons", "adult * citizenship", "school")["on_spine"]


def test_what_is_exact_has_no_implied_error(errors: pd.DataFrame) -> None:
    for level in ("country", "region"):
        total = row(errors, "persons", "total", level)
        assert total["largest"] == 0 and total["predicted_standard_deviation"] == 0
    for level in ("municipality", "section", "school"):
        total = row(errors, "persons", "total", level)
        implied, found = total["predicted_standard_deviation"], total["root_mean_square_error"]
        assert implied > 0
        assert found < 1.5 * implied, "post-processing of totals adds little"
    assert row(errors, "dwellings", "total", "school")["predicted_standard_deviation"] == 0
    detailed = row(errors, "dwellings", "detailed", "section")
    assert detailed["predicted_standard_deviation"] > 0
