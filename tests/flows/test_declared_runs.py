"""Declared censuses drawn at random, from the settings to the last page that a user can ask for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy import steps

from tests.tasks.topdown.drawn import draw_census

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

ESTIMATORS = ("topdown", "full_information", "block_by_block")


def drawn(folder: Path, seed: int) -> tuple[Path, dict]:
    """Settings of a random census of two to five geolevels, with random budgets."""
    tree = draw_census(folder, seed, most_geolevels=5)
    rng = np.random.default_rng(seed + 1_000_000)
    estimator = ESTIMATORS[seed % len(ESTIMATORS)]
    tree["run"] = {"estimator": estimator}
    tree["release"] = {"margins": bool(rng.random() < 0.5)}
    geolevels = tree["census"]["geography"]["geolevels"]
    persons = tree["census"]["universes"]["persons"]
    if estimator == "block_by_block":
        last = geolevels[-1]
        persons["invariants"] = [one for one in persons["invariants"] if one["geolevel"] == last]
    elif rng.random() < 0.3:
        tree["budget"]["persons"]["mechanism"] = "discrete_laplace"
        tree["budget"]["persons"]["epsilon"] = "2"
        for name in ("rho", "delta"):
            del tree["budget"]["persons"][name]
    file = folder / "settings.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return file, tree


def may_have_no_solution(tree: dict) -> bool:
    """Whether exact numbers of areas may leave no place for the noisy ones that a linear row joins:
    parents are estimated without the rows of what lies below them."""
    persons = tree["census"]["universes"]["persons"]
    exact = [one["query"] for one in persons["invariants"]]
    return "kind" in exact and bool(persons["relations"])


def run_to_the_end(folder: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    file, tree = drawn(folder, seed)
    run = RunDirectory(folder / "run")
    code = main(["run", "topdown", str(file), "--run-dir", str(run.root)])
    shown = capsys.readouterr()
    tables = [pd.read_parquet(folder / f"{name}.parquet") for name in ("persons", "dwellings")]
    if any(table.empty for table in tables):
        assert code == 2 and "the file holds no rows" in shown.err
        assert not run.dpqueries("persons", "all", "00000").exists()
        return
    if code == 4 and may_have_no_solution(tree):
        assert "cannot meet the linear constraints" in shown.err
        return
    assert code == 0, shown.err
    manifest = run.read_manifest()
    assert (manifest["status"], manifest["warnings"]) == ("complete", [])
    assert not (run.confidential / "errors").exists()
    for name in ("report.html", "accuracy.html"):
        assert (run.report.parent / name).stat().st_size > 10_000
    figures = pd.read_parquet(run.confidential / "accuracy" / "errors.parquet")
    levels = set(tree["census"]["geography"]["geolevels"])
    if pd.read_csv(folder / "areas.csv", dtype=str)["zone"].notna().any():
        levels.add("zone")
    assert levels <= set(figures["level"])
    told = figures["predicted_standard_deviation"].dropna()
    assert (told >= 0).all() and len(told)
    people = pd.read_parquet(run.release / "mdf_persons.parquet")
    tables_are_those_of_the_microdata(run, tree, people)
    code = main(["report", str(run.root), "--expected", "1"])
    if code == 4 and may_have_no_solution(tree):
        assert main(["report", str(run.root)]) == 0
    else:
        assert code == 0, capsys.readouterr().err
        assert (run.report.parent / "expected_error.html").stat().st_size > 3_000
    budget = ["budget", "topdown", str(file), "--forecast", str(folder / "forecast.html")]
    assert main(budget) == 0, capsys.readouterr().err
    for query in ("total", "role"):
        intervals_are_whole(run, tree, query, capsys)


def tables_are_those_of_the_microdata(run: RunDirectory, tree: dict, people: pd.DataFrame) -> None:
    """The table at every level, and with its margins, where they were asked for."""
    table = pd.read_parquet(run.release / "tables" / "T.parquet")
    levels = tree["census"]["geography"]["geolevels"]
    family = people["role"].map({"head": "couple", "spouse": "couple", "other": "rest"})
    kinds = people.groupby([family, people["kind"]]).size()
    kinds = kinds[kinds > 0]
    for level, own in table.groupby("level"):
        found = own.groupby(["family", "kind"])["count"].sum()
        if level in levels:
            assert found[found > 0].to_dict() == kinds.to_dict()
            below = levels[1 : levels.index(level) + 1]
            sizes = own.groupby("code")["count"].sum()
            known = people.groupby(below).size() if below else pd.Series([len(people)])
            assert sorted(sizes[sizes > 0]) == sorted(known[known > 0])
        else:
            assert (found <= kinds.reindex(found.index, fill_value=0)).all()


def intervals_are_whole(
    run: RunDirectory, tree: dict, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every geounit of every geolevel has its intervals, and exact totals have no width."""
    exact = {
        one["geolevel"]
        for one in tree["census"]["universes"]["persons"]["invariants"]
        if one["query"] == "total"
    }
    n_answers = {"total": 1, "role": 3}[query]
    levels = tree["census"]["geography"]["geolevels"]
    areas = pd.read_csv(run.root.parent / "areas.csv", dtype=str, keep_default_na=False)
    for geolevel in levels:
        out = run.root.parent / f"{query}-{geolevel}.parquet"
        asked = ["intervals", str(run.root), "--universe", "persons", "--query", query]
        code = main([*asked, "--geolevel", geolevel, "--out", str(out)])
        assert code == 0, capsys.readouterr().err
        found = pd.read_parquet(out)
        below = levels[1 : levels.index(geolevel) + 1]
        n_geounits = len(areas.groupby(below)) if below else 1
        # Groups of areas stand in place of the last geolevel but one on an optimised spine: several
        # may share the exact total of one geounit of that level.
        groups = tree["geography"]["spine"] == "optimized" and geolevel == levels[-2]
        if not groups:
            assert len(found) >= n_answers * n_geounits
        assert (found["lower"] <= found["upper"]).all()
        assert found[["estimate", "std_dev", "lower", "upper"]].notna().all(axis=None)
        branched = "branch" in tree["census"]["geography"]
        if query == "total" and geolevel in exact and not branched and not groups:
            assert (found["lower"] == found["upper"]).all()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30))
def test_random_censuses_run_to_the_end(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run_to_the_end(tmp_path, seed, capsys)


def test_a_comparison_that_fails_holds_no_release_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console, the manifest and the report say so; the detail stays in confidence."""
    file, _ = drawn(tmp_path, 0)

    def fails(*_: object) -> None:
        raise ValueError("of 17 persons in area x3")

    run = RunDirectory(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(steps, "write_run_accuracy", fails)
        assert main(["run", "topdown", str(file), "--run-dir", str(run.root)]) == 0
    sentence = "The comparison with the truth failed with ValueError; the detail is in "
    shown = capsys.readouterr()
    assert f"warning: {sentence}confidential/errors/" in shown.out
    assert "17 persons" not in shown.out + shown.err
    assert (run.release / "certificate.md").exists()
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    (warning,) = manifest["warnings"]
    assert warning.startswith(sentence) and warning.endswith("The release does not depend on it.")
    assert sentence in run.report.read_text(encoding="utf-8")
    public = json.loads((run.checks / "warnings.json").read_text(encoding="utf-8"))
    assert public["warnings"] == [warning]
    (kept,) = (run.confidential / "errors").iterdir()
    assert "17 persons in area x3" in kept.read_text(encoding="utf-8")

    assert main(["report", str(run.root)]) == 0
    assert run.read_manifest()["warnings"] == []
    assert not (run.checks / "warnings.json").exists()
    assert sentence not in run.report.read_text(encoding="utf-8")
    assert (run.report.parent / "accuracy.html").exists()
