"""The group-sizes flow with other inputs, noise and mechanisms; `conformance` has the rest."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.flows.running import prepare
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.product import GROUP_SIZES as PRODUCT
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country


def generated(folder: Path, *, confidential: bool = True) -> Path:
    dataset = census_like(groups=20_000, counties=15, states=4, largest=60)
    file = write_dataset(folder, dataset)
    if confidential:
        file.write_text(file.read_text().replace("confidential = false\n", ""))
    return file


def run_settings(file: Path, folder: Path) -> RunDirectory:
    settings = PRODUCT.load(file)
    run = prepare(settings, folder)
    running.run_stages(PRODUCT, run, settings)
    return run


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_census_tables_release_households_of_every_size(county: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        f'[input]\npersons = "{county / "persons.parquet"}"\nunits = "{county / "units.parquet"}"\n'
        f'geography = "{county / "grfc.txt"}"\n[mechanism]\nlargest_size = 600\n'
        '[privacy]\ndataset = "county"\nepsilon = "1/2"\nneighbors = "bounded"\n'
    )
    run = run_settings(file, tmp_path / "run")
    sizes = pd.read_parquet(run.release / "group_sizes.parquet")
    assert list(dict.fromkeys(sizes["level"])) == ["US", "State", "County"]
    assert sizes["size"].min() == 0
    units = pd.read_parquet(county / "units.parquet")
    assert set(sizes.groupby("level")["count"].sum()) == {len(units)}
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]["county"]
    assert spent["rho"] == "1/8"


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_gaussian_noise_and_public_numbers_by_state(tmp_path: Path) -> None:
    file = generated(tmp_path, confidential=False)
    text = file.read_text().replace('epsilon = "1"', 'rho = "1/2"')
    file.write_text(text.replace("groups = true", 'groups = true\nlevel = "state"'))
    run = run_settings(file, tmp_path / "run")
    sizes = pd.read_parquet(tmp_path / "sizes.parquet")
    expected = sizes.groupby(sizes["region"].str[:2])["count"].sum()
    totals = pd.read_parquet(run.release / "group_totals.parquet")
    found = totals[totals["level"] == "state"].set_index("region")["groups"]
    assert (found == expected).all()
    report = run.report.read_text()
    assert "at rho 1/2" in report or "rho 0.5" in report or "rho 1/2" in report
    assert "The number of groups in every state is public" in report
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]["census-like"]
    assert spent["rho"] == "2"


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
