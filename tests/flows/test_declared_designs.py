"""Commands on a declared census before and after a run: its design, and the errors to expect."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest import generate as generated
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

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


@pytest.mark.usefixtures("uncompared")
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


@pytest.mark.soak(5)
@pytest.mark.parametrize("mechanism", ["rho", "epsilon"])
def test_pages_of_what_to_expect(country: Path, tmp_path: Path, mechanism: str):
    """Before a run from the declaration, with simulated releases; after it from the release."""
    text = COUNTRY
    if mechanism == "epsilon":
        for rho in ('"2"', '"1/10"'):
            pure = f'mechanism = "discrete_laplace"\nepsilon = {rho}'
            text = text.replace(f'rho = {rho}\ndelta = "1e-10"', pure)
        assert "rho" not in text
    file, page = country / "pages.toml", tmp_path / "forecast.html"
    file.write_text(text, encoding="utf-8")
    command = ["budget", "topdown", str(file), "--forecast", str(page)]
    assert main([*command, "--replicates", "1"]) == 0
    shown = page.read_text(encoding="utf-8")
    for words in ("Margins of persons", "municipality", "school", "exact", "Simulated releases"):
        assert words in shown
    # An exact total above the areas cannot be held by estimates of every area by itself.
    assert "expected error, full information" in shown and "area by area" not in shown
    settings = TOPDOWN.load(file)
    run = running.prepare(settings, tmp_path / "run")
    running.run_stages(TOPDOWN, run, settings)
    for path in run.confidential.rglob("*.parquet"):
        path.unlink()
    assert main(["report", str(run.root), "--expected", "1"]) == 0
    expected = (run.report.parent / "expected_error.html").read_text(encoding="utf-8")
    assert "municipality" in expected and "sex * age" in expected


OF_2020 = re.compile(
    r"\b(blocks?|block groups?|AIAN|tracts?|count(?:y|ies)|states?|FIPS|housing units?|MCD|race"
    r"|group[ -]quarters|living quarters|hispanic|redistricting|facilit\w+|census of 2020)\b",
    re.IGNORECASE,
)


def words_of_2020(text: str) -> list[str]:
    """Words of the census of 2020 in what people read of a page, each with what is around it."""
    text = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return [text[max(0, m.start() - 60) : m.end() + 60] for m in OF_2020.finditer(text)]


@pytest.mark.soak(5)
@pytest.mark.parametrize("estimator", ["full_information", "block_by_block"])
def test_nothing_that_people_read_has_words_of_another_census(
    country: Path, capsys, estimator: str
) -> None:
    """Reports, certificate, forecasts and what commands print have the census's own geolevels."""
    text = COUNTRY.replace('spine = "conventional"', 'spine = "optimized"')
    text = text.replace('invariants = [{ query = "total", geolevel = "region" }]\n', "")
    branch = '[census.geography]\nbranch = { column = "school", codes = ["district 1"] }'
    text = text.replace("[census.geography]", branch)
    groups = """
[census.redistricting]
universe = "persons"
populations = { everyone = {} }
groups = [{ each = "citizenship" }]
"""
    file, run = country / "settings.toml", RunDirectory(country / "run")
    text += f'{groups}[run]\nestimator = "{estimator}"\n'
    file.write_text(text, encoding="utf-8")
    forecast = country / "forecast.html"
    for command in (
        ["check", "topdown", str(file)],
        ["budget", "topdown", str(file), "--forecast", str(forecast), "--replicates", "1"],
        ["run", "topdown", str(file), "--run-dir", str(run.root)],
        ["report", str(run.root), "--expected", "1"],
        ["report", str(run.root), str(run.root)],
    ):
        assert main(command) == 0, capsys.readouterr().err
    shown = "".join(capsys.readouterr())
    assert "section within its municipality" in shown
    assert words_of_2020(shown) == []
    pages = [forecast, *run.report.parent.glob("*.html"), *run.release.glob("certificate.*")]
    assert len(pages) >= 7
    for page in pages:
        assert words_of_2020(page.read_text(encoding="utf-8")) == [], page.name
    certificate = (run.release / "certificate.md").read_text(encoding="utf-8")
    assert "Epsilon for the section of a record" in certificate
