"""Designs, forecasts and expected errors of declared censuses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import tomli_w
from spineflow.flows.cli import main
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures
from spineflow.tasks.topdown.checks.replicate import (
    estimate,
    lay_out,
    measure,
    read_dataset,
    with_seed,
)
from spineflow.tasks.topdown.design.design import NORMAL_95
from spineflow.tasks.topdown.design.forecast import FULL, forecasts
from spineflow.tasks.topdown.ingest.generate import generate_country
from spineflow.tasks.topdown.ingest.ingest import public_tables
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.seeds import seeds
from tests.tasks.topdown.drawn import draw_census

REPOSITORY = Path(__file__).resolve().parents[4]
COUNTRY = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")
TARGETS = """
[design.persons.targets]
towns = { query = "total", level = "municipality" }
ages = { query = "sex * age", level = "region" }
schools = { query = "adult", level = "school" }
"""
PURE = {"mechanism": "discrete_laplace", "epsilon": "2"}


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("country")
    (folder / "input").mkdir()
    generate_country(folder / "input")
    return folder


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def designed(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict:
    capsys.readouterr()
    assert main(["design", "topdown", str(file), "--json", *options]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.slow) if seed in (0, 1, 2) else seed
        for seed in seeds(3, 24)
    ],
)
def test_forecasts_are_what_the_accuracy_of_a_release_predicts(tmp_path: Path, seed: int) -> None:
    """Two computations, one from the declaration alone and one from a run's files, under both
    mechanisms, on all spines and with invariants anywhere."""
    tree = draw_census(tmp_path, seed, most_geolevels=5)
    persons = tree["census"]["universes"]["persons"]
    if any(one["query"] == "kind" for one in persons["invariants"]):
        # Exact numbers of kinds may leave no place for the noisy ones that a relation joins.
        persons["relations"] = []
    if seed % 3 == 0:
        budget = tree["budget"]["persons"]
        tree["budget"]["persons"] = PURE | {"queries": budget["queries"]}
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    settings = load_settings(TopdownSettings, tmp_path / "settings.toml", presets=PRESETS)
    if any(len(pd.read_parquet(tmp_path / f"{name}.parquet")) < 3 for name in settings.budget):
        pytest.skip("there is nobody to speak of")
    dataset = read_dataset(settings, tmp_path / "dataset")
    seeded = with_seed(settings, 1)
    measured = measure(lay_out(dataset, settings, tmp_path / "layout"), seeded, tmp_path / "m")
    errors = compute_figures(estimate(measured, seeded, tmp_path / "e"), seeded).errors
    errors = errors[(errors["answer"] == "all") & (errors["size_class"] == "all")]
    keys = ["universe", "quantity", "level"]
    predicted = errors.set_index(keys)["predicted_standard_deviation"]
    # Exact answers to finer queries than the total are none to the estimates.
    told = {one["query"] for one in persons["invariants"]}
    compared = 0
    tables = public_tables(settings)
    forecast = [one for name in settings.run.universes for one in forecasts(settings, name, tables)]
    for row in forecast:
        key, margin = (row.universe, row.query, row.level), row.margins[FULL]
        if row.query in ("total", "family") and key in predicted.index and margin is not None:
            if margin == 0 and predicted[key] > 0:
                assert row.query == "total" and "kind" in told
                continue
            compared += 1
            assert margin / NORMAL_95 == pytest.approx(predicted[key], rel=5e-3, abs=1e-4), key
    assert compared > 4


REFUSED = {
    "exact": ('a = { query = "total", level = "region" }', "known exactly, whatever is measured"),
    "finer": (
        'a = { query = "sex", level = "country" }',
        "known exactly, whatever is measured",
    ),
    "no level": ('a = { query = "total", level = "regoin" }', "did you mean 'region'"),
    "2020": (
        'a = { query = "total", level = "region", smallest_housing_units = 3 }',
        "smallest_housing_units is of the census of 2020",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_designed_is_refused(country: Path, capsys, case: str) -> None:
    target, sentence = REFUSED[case]
    text = COUNTRY
    if case == "finer":
        exact = 'query = "sex * age", geolevel = "municipality"'
        text = text.replace('query = "total", geolevel = "region"', exact)
    file = written(country, "refused", f"{text}[design.persons.targets]\n{target}\n")
    capsys.readouterr()
    assert main(["design", "topdown", str(file)]) == 2
    assert sentence in capsys.readouterr().err
