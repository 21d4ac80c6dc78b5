"""Commands on a declared census before and after a run: its design, and the errors to expect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest import generate as generated
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tasks.topdown.abroad import write_census

REPOSITORY = Path(__file__).resolve().parents[2]
COUNTRY = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")
TARGETS = """
[design.persons.targets]
towns = { query = "total", level = "municipality" }
ages = { query = "sex * age", level = "region" }
"""


@pytest.fixture
def country(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty-eight sections of a few dwellings in twelve municipalities."""
    for name, number in (("MUNICIPALITIES", 3), ("SECTIONS", 4), ("DWELLINGS", 8)):
        monkeypatch.setattr(generated, name, number)
    (tmp_path / "input").mkdir()
    generated.generate_country(tmp_path / "input")
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.usefixtures("uncompared")
@pytest.mark.soak(6)
def test_a_file_with_a_design_is_designed_checked_and_run(
    country: Path, tmp_path: Path, capsys
) -> None:
    """`design` reads no person; `check` and `run` take the same file, and what comes of it."""
    file = country / "designed.toml"
    file.write_text(COUNTRY + TARGETS, encoding="utf-8")
    persons = country / "input" / "persons.parquet"
    persons.rename(tmp_path / "persons.parquet")
    assert main(["design", "topdown", str(file), "--json"]) == 0
    design = json.loads(capsys.readouterr().out)["persons"]
    (tmp_path / "persons.parquet").rename(persons)
    assert all(target["designed"] < 0.8 * target["now"] for target in design["targets"])
    assert design["gap"] < 0.01
    out = country / "designed-designed.toml"
    budget = load_settings(TopdownSettings, out, presets=PRESETS).budget_of("persons")
    assert {name: str(s) for name, s in budget.geolevel_shares.items()} == design["geolevels"]
    assert main(["check", "topdown", str(file)]) == 0
    frozen = []
    for number, own in enumerate((file, out)):
        run = tmp_path / f"run-{number}"
        assert main(["run", "topdown", str(own), "--run-dir", str(run)]) == 0
        frozen.append((run / "settings.toml").read_text(encoding="utf-8"))
    assert not any("[design" in text for text in frozen)


@pytest.fixture
def by_year(tmp_path: Path) -> Path:
    """The census of the office abroad by single years of age, which a query coarsens."""
    path = write_census(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("bins = [0, 15, 30, 65], largest = 110", "numbers = [0, 110]"),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("command", ["check", "budget"])
@pytest.mark.parametrize("rho", ["1e-12", "1e-9"])
def test_a_budget_whose_noise_has_no_margin_is_refused_by_its_key(
    by_year: Path, capsys, command: str, rho: str
) -> None:
    overrides = ["--set", f'budget.people.rho="{rho}"']
    assert main([command, "topdown", str(by_year), *overrides]) == 2
    assert "budget.people.rho is 1e-" in capsys.readouterr().err
