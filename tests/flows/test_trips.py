"""The trips flow through the command: mechanisms, warnings, budget; `conformance` has the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

SMALL = CountrySize(regions=3, provinces=6, municipalities=30, pairs=300, commuters=50_000)


@pytest.fixture
def country(tmp_path: Path) -> Path:
    """A settings file of a private run, beside its generated input."""
    return generate_country(tmp_path / "country", SMALL, seed=4)


def confidential(settings: Path) -> Path:
    text = settings.read_text().replace("confidential = false", "confidential = true")
    settings.write_text(text)
    return settings


def with_counts(settings: Path, first: float) -> None:
    path = settings.parent / "trips.parquet"
    table = pd.read_parquet(path)
    table["commuters"] = [first, *table["commuters"][1:]]
    table.to_parquet(path)


def test_counts_of_confidential_rows_are_not_told(country: Path, capsys) -> None:
    with_counts(country, -1)
    assert main(["check", "trips", str(country)]) == 2
    assert "must not be negative in any row (1 row" in capsys.readouterr().err
    confidential(country)
    assert main(["check", "trips", str(country)]) == 2
    errors = capsys.readouterr().err
    assert "must not be negative" in errors and "row breaks" not in errors


@pytest.mark.slow
def test_a_large_delta_warns(country: Path, capsys) -> None:
    assert main(["check", "trips", str(country), "--set", "privacy.delta=1/1000"]) == 0
    assert "warning: privacy.delta = 1/1000 is not below" in capsys.readouterr().err
    assert main(["check", "trips", str(country)]) == 0
    assert "warning" not in capsys.readouterr().err
    options = ["--set", "privacy.delta=1/1000", "--set", "privacy.neighbors=unbounded"]
    assert main(["check", "trips", str(confidential(country)), *options]) == 2
    assert "privacy.delta is not below one over the number" in capsys.readouterr().err
    accepted = ["--set", "privacy.large_delta=a person may be published outright"]
    assert main(["check", "trips", str(country), *options, *accepted]) == 0


def test_budget_shows_every_level(country: Path, capsys) -> None:
    assert main(["budget", "trips", str(country), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["trips"]
    assert report["neighbors"] == "bounded"
    assert report["epsilon"]["simple"] == pytest.approx(1, abs=1e-9)
    assert [query["share"] for query in report["queries"]] == ["1/6"] * 6
    assert report["queries"][-1]["geolevel"] == "origin municipality, destination municipality"
    assert main(["budget", "trips", str(country)]) == 0
    assert "origin municipality" in capsys.readouterr().out
