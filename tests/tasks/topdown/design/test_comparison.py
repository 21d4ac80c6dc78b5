"""Differences of errors between allocations, and allocations whose shares add up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows import results
from spineflow.flows.cli import main
from spineflow.flows.running import call_stages
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.study.trials import replicate_path
from spineflow.tasks.topdown.design.comparison import (
    ALLOCATIONS,
    STATISTICS,
    allocations,
    compared,
    designs_file,
    release,
    trials_file,
    write_report,
)
from spineflow.tasks.topdown.design.design import design_universe
from spineflow.tasks.topdown.design.settings import ComparisonSettings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import public_tables
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = {confidential}
[privacy]
dataset = "county"
[run]
universes = ["persons"]
[design.persons.targets]
tracts = {{ query = "total", level = "tract" }}
[comparison]
replicates = 2
estimators = ["topdown", "block_by_block"]
"""


def settings_of(folder: Path, confidential: str = "false") -> Path:
    generate_county(folder, persons=600, seed=5)
    path = folder / "settings.toml"
    path.write_text(SETTINGS.format(confidential=confidential), encoding="utf-8")
    return path


def test_differences_are_taken_seed_by_seed() -> None:
    head = {"universe": "persons", "quantity": "total", "level": "tract", "estimator": "topdown"}
    rows = []
    for seed, (own, designed) in enumerate([(2.0, 3.0), (4.0, 5.0), (9.0, 9.0)], 1):
        for allocation, error in (("as set", own), ("designed", designed)):
            figures = {
                "mean_absolute_error": error,
                "root_mean_square_error": 2 * error,
                "bias": -error,
            }
            rows.append({**head, "allocation": allocation, "seed": seed, **figures})
    found = compared(pd.DataFrame(rows)).set_index(["allocation", "statistic"])
    designed = found.loc["designed", "mean_absolute_error"]
    assert designed["mean"] == pytest.approx(17 / 3)
    assert designed["difference"] == pytest.approx(2 / 3)
    # Differences 1, 1, 0 have the variance 1/3, and their mean a ninth.
    assert designed["difference_standard_error"] == pytest.approx(1 / 3)
    assert found.loc["designed", "bias"]["difference"] == pytest.approx(-2 / 3)
    assert np.isnan(found.loc["as set", "bias"]["difference"])


def page_of(folder: Path, universes: str = '["persons"]', further: str = "") -> str:
    """The page of a comparison of given replicates, as Markdown would not tell its panels."""
    file = folder / "settings.toml"
    text = SETTINGS.format(confidential="false").replace('["persons"]', universes)
    file.write_text(f"{text}{further}", encoding="utf-8")
    settings = load_settings(ComparisonSettings, file, presets=PRESETS)
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    start_run(run, product="design", settings_text=dump_settings(settings), stamp=settings.stamp)
    trials = {
        name: {own: f"{name[:2]}-{own}" for own in settings.estimators} for name in ALLOCATIONS
    }
    for number, allocation in enumerate(ALLOCATIONS):
        for seed in (1, 2):
            rows = [
                {
                    "universe": universe,
                    "quantity": quantity,
                    "level": level,
                    **dict.fromkeys(STATISTICS, value := 10 * number + seed + 100 * (level == "a")),
                    "bias": -value,
                }
                for universe in settings.run.universes
                for quantity in ("first", "second")
                for level in ("a", "b")
            ]
            for trial in trials[allocation].values():
                path = replicate_path(run, trial, seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps({"value": None, "errors": rows}), encoding="utf-8")
    designs_file(run).parent.mkdir()
    trials_file(run).write_text(json.dumps(trials), encoding="utf-8")
    designs_file(run).with_name("settings.toml").write_text("designed = true\n", encoding="utf-8")
    certificates = {name: {"certificate": f"{name} is best"} for name in settings.run.universes}
    designs_file(run).write_text(json.dumps(certificates), encoding="utf-8")
    release(run, settings)
    assert (run.release / "settings.toml").read_text() == "designed = true\n"
    return write_report(run, settings).read_text(encoding="utf-8")


def test_the_page_has_means_and_differences_from_what_was_set(tmp_path: Path) -> None:
    """Under the seeds 1 and 2 the errors at `a` are 101 and 102 as set, and 10 and 20 more."""
    page = page_of(tmp_path)
    tidy = pd.read_csv(tmp_path / "run" / "release" / "comparison.csv")
    assert len(tidy) == 2 * 2 * 2 * 3 * len(STATISTICS)
    cells = ["a", "topdown", "101.5 ± 0.5", "111.5 ± 0.5", "121.5 ± 0.5", "10 ± 0", "20 ± 0"]
    row = "".join(f"<td[^>]*>{re.escape(cell)}</td>" for cell in cells)
    # Of both quantities, and of two statistics; a bias is the other way.
    assert len(re.findall(row, page)) == 4
    assert "-101.5 ± 0.5" in page and "-20 ± 0" in page
    assert "Proven of the design: persons: persons is best." in page
    assert "3 splits and 2 estimators were compared over 2 replicates" in page
    assert "at the same rho, over 2 releases" in page
    assert "first of persons" in page and "second of persons" not in page
    assert "Root mean square error, topdown." in page
    assert "NOT PRIVATE" in page


@pytest.mark.soak
def test_all_allocations_are_released_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(ComparisonSettings, settings_of(tmp_path), presets=PRESETS)
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    start_run(run, product="design", settings_text=dump_settings(settings), stamp=settings.stamp)
    call_stages(run, settings)
    tidy = pd.read_csv(run.release / "comparison.csv")
    assert set(tidy["allocation"]) == set(ALLOCATIONS)
    assert set(tidy["estimator"]) == {"topdown", "block_by_block"}
    assert not tidy["level"].str.contains("spine").any()
    of_state = tidy[(tidy["level"] == "state") & (tidy["quantity"] == "total population")]
    exact = of_state[of_state["estimator"] == "topdown"]
    assert (exact["mean"] == 0).all()
    tract = tidy[(tidy["level"] == "tract") & (tidy["quantity"] == "total population")]
    error = tract[tract["statistic"] == "root_mean_square_error"].set_index(
        ["allocation", "estimator"]
    )["mean"]
    assert error["designed", "topdown"] < error["uniform", "topdown"]
    again = load_settings(TopdownSettings, run.release / "settings.toml", presets=PRESETS)
    assert again.run.estimator == "full_information"
    assert "NOT PRIVATE" in run.report.read_text(encoding="utf-8")
    # The page of the flow run has a result, though nothing was checked.
    shown: list[str] = []
    monkeypatch.setattr(results, "create_markdown_artifact", lambda text, **_: shown.append(text))
    results.show_outcome(run, settings)
    assert len(shown) == 1 and str(run.release) in shown[0]
    # Nothing is made again.
    before = {path: path.stat().st_mtime_ns for path in (run.root / "trials").rglob("*.json")}
    call_stages(run, settings)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_confidential_input_is_refused(tmp_path: Path, capsys) -> None:
    path = settings_of(tmp_path, "true")
    assert main(["run", "design", str(path), "--run-dir", str(tmp_path / "run")]) == 2
    assert "which no ledger records" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.soak(2)
@pytest.mark.slow
def test_all_allocations_keep_the_same_exact_guarantee(tmp_path: Path) -> None:
    file = settings_of(tmp_path)
    exact = 'epsilon = "8"\ndelta = "1e-6"\naccounting = "exact"'
    file.write_text(f"{file.read_text(encoding='utf-8')}[budget.persons]\n{exact}\n", "utf-8")
    settings = load_settings(ComparisonSettings, file, presets=PRESETS).resolved()
    geography, invariants = public_tables(settings.topdown)
    designs = {"persons": design_universe(settings, "persons", (geography, invariants))}
    rhos = {}
    for name, made in allocations(settings, designs).items():
        budget = made.budget_of("persons")
        rhos[name] = budget.total
        assert 7.999 < exact_epsilon(budget, budget.delta) <= 8
        assert sum(budget.geolevel_shares.values()) == 1
        assert all(sum(shares.values()) == 1 for shares in budget.query_shares.values())
        is_even = len(set(budget.geolevel_shares.values())) == 1
        assert is_even == (name == "uniform")
    assert rhos["as set"] == settings.budget["persons"].rho
    assert len(set(rhos.values())) == 3
