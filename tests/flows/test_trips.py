"""The trips flow through the command: mechanisms, warnings, budget; `conformance` has the rest."""

from __future__ import annotations

from pathlib import Path

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
