"""The group-sizes flow on small datasets, through the same functions as the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.flows.running import prepare
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.product import GROUP_SIZES as PRODUCT
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import DERIVED, RunDirectory

from tests.flows.in_process import stages_in_process

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("groups")
    with stages_in_process(judged_twice=False):
        return run_settings(generated(folder), folder / "run")


def test_release_is_whole_consistent_and_charged(finished: RunDirectory) -> None:
    run = finished
    assert {path.name for path in run.release.iterdir()} == {
        "group_sizes.parquet",
        "group_sizes.csv",
        "group_totals.parquet",
        "certificate.html",
        "certificate.md",
        "group_totals.csv",
    }
    sizes = pd.read_parquet(run.release / "group_sizes.parquet")
    assert len(sizes) == (1 + 4 + 15) * 60
    assert sizes["count"].min() >= 0
    assert set(sizes.groupby("level")["count"].sum()) == {20_000}
    county = sizes[sizes["level"] == "county"]
    states = county.groupby([county["region"].str[:2], "size"])["count"].sum()
    state = sizes[sizes["level"] == "state"].set_index(["region", "size"])["count"]
    assert (states == state).all()
    checks = json.loads((run.checks / "checks.json").read_text())
    assert checks["passed"]
    assert [check["name"] for check in checks["checks"]] == [
        "privacy_accounting",
        "consistency",
        "validity",
        "faithfulness",
    ]
    assert run.confidential.stat().st_mode & 0o777 == 0o700
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    assert set(manifest["input_digests"]) == {"groups"}
    spent = summary(open_ledger(run.root.parent / "ledger.db"))["datasets"]["census-like"]
    assert len(spent["products"]["group-sizes"]["draws"]) == 1
    assert spent["rho"] == "2"


def test_public_files_hold_no_errors_of_confidential_input(finished: RunDirectory) -> None:
    assert "Error" not in finished.report.read_text()
    assert (finished.confidential / "accuracy.parquet").exists()


@pytest.mark.usefixtures("in_process")
def test_a_second_run_reuses_what_is_there(finished: RunDirectory) -> None:
    before = {
        path: path.stat().st_mtime_ns
        for folder in ("measurements", "estimates", "release")
        for path in (finished.root / folder).rglob("*.parquet")
    }
    run_settings(finished.root.parent / "settings.toml", finished.root)
    assert all(path.stat().st_mtime_ns == seen for path, seen in before.items())


@pytest.mark.usefixtures("in_process")
def test_after_the_last_measurement_nothing_confidential_is_read(
    finished: RunDirectory, tmp_path: Path
) -> None:
    """What is derived comes back the same from measurements and public files alone."""
    folder = tmp_path / "groups"
    shutil.copytree(finished.root.parent, folder)
    run = RunDirectory(folder / "run")
    released = {path.name: path.read_bytes() for path in run.release.iterdir()}
    shutil.rmtree(run.confidential)
    for name in DERIVED:
        shutil.rmtree(run.root / name, ignore_errors=True)
    assert main(["resume", str(run.root)]) == 0
    assert {path.name: path.read_bytes() for path in run.release.iterdir()} == released
    run.report.unlink()
    assert main(["report", str(run.root)]) == 0
    assert run.report.exists()


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
    assert "rho of zCDP" in report
    assert "The number of groups in every state is public" in report
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]["census-like"]
    assert spent["rho"] == "2"


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("mechanism", ["hierarchical", "chain_dp", "topdown"])
def test_other_mechanisms_run_through(tmp_path: Path, mechanism: str) -> None:
    dataset = census_like(groups=3000, counties=8, states=3, largest=10)
    file = write_dataset(tmp_path, dataset)
    override = f"mechanism.name={mechanism}"
    assert (
        main(["run", "group-sizes", str(file), "--set", override, "--run-dir", f"{tmp_path}/run"])
        == 0
    )
    report = (tmp_path / "run" / "report" / "report.html").read_text()
    assert mechanism in report
    assert "Error up to each size" in report


def test_commands_describe_a_run(tmp_path: Path, capsys) -> None:
    file = generated(tmp_path)
    assert main(["check", "group-sizes", str(file)]) == 0
    assert "in order" in capsys.readouterr().out
    assert main(["budget", "group-sizes", str(file)]) == 0
    assert "cumulative_dp, proven calibration, epsilon 1.0" in capsys.readouterr().out
    assert main(["budget", "group-sizes", str(file), "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["groups"]
    assert [query["scale"] for query in cost["queries"]] == ["3", "3", "3"]
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("sizes.csv", "01001,1,", "01001,0,", "size must be a whole number of at least 1"),
        ("sizes.csv", "01001,1,", "01001,1.5,", "size must be a whole number of at least 1"),
        ("sizes.csv", "01001,1,", "77777,1,", "region must be a region of the finest level"),
        ("regions.csv", "county,01001,01", "county,01001,0", "01001 of level county has a parent"),
        ("settings.toml", "groups = true", "groups = 5", "the number of groups must be that of"),
        ("settings.toml", 'epsilon = "1"', 'epsilon = "0"', "epsilon must be a positive fraction"),
        ("settings.toml", "groups = true", "groups = false", "declare it with invariants.groups"),
    ],
)
@pytest.mark.usefixtures("judged_in_process")
def test_refusals_are_one_sentence_and_exit_code_two(
    tmp_path: Path, capsys, file: str, old: str, new: str, sentence: str
) -> None:
    settings = generated(tmp_path)
    pd.read_parquet(tmp_path / "sizes.parquet").to_csv(tmp_path / "sizes.csv", index=False)
    settings.write_text(settings.read_text().replace("sizes.parquet", "sizes.csv"))
    spoiled = tmp_path / file
    assert old in spoiled.read_text()
    spoiled.write_text(spoiled.read_text().replace(old, new, 1))
    assert main(["ledger", "init", "--cap", "10", "--ledger", str(tmp_path / "ledger.db")]) == 0
    code = main(["run", "group-sizes", str(settings), "--run-dir", str(tmp_path / "run")])
    errors = capsys.readouterr().err
    assert code == 2
    assert sentence in errors
    assert errors.count("\n") == 1
    assert "77777" not in errors
    assert not (tmp_path / "run" / "measurements").exists()
    assert not (tmp_path / "run" / "release").exists()
    assert not summary(open_ledger(tmp_path / "ledger.db"))["datasets"]


def kill_and_resume(spineflow, folder: Path, moment: str, **environment: str) -> None:
    """Kill a run once a file is there; the resumed run keeps its noise and finishes."""
    settings = generated(folder)
    run = RunDirectory(folder / "run")
    command = ("run", "group-sizes", str(settings), "--run-dir", str(run.root))
    killed = spineflow(*command, folder=folder, **environment)
    killed.wait_for(run.root / moment)
    killed.kill()
    measured = {
        path: path.read_bytes() for path in (run.root / "measurements").rglob("dpqueries/*.parquet")
    }
    resumed = spineflow("resume", str(run.root), folder=folder, **environment)
    code, _, errors = resumed.ended()
    assert code == 0, errors
    assert all(path.read_bytes() == seen for path, seen in measured.items())
    assert (run.release / "group_sizes.csv").exists()
    assert not [path for path in run.root.rglob("*") if path.suffix in (".part", ".unpublished")]
    spent = summary(open_ledger(folder / "ledger.db", must_exist=True))["datasets"]["census-like"]
    assert len(spent["products"]["group-sizes"]["draws"]) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    "moment",
    [
        "manifest.json",
        "hierarchy/regions.parquet",
        "hierarchy/plan.json",
        "measurements/groups/nation/dpqueries/00000.parquet",
        "measurements/groups/state/dpqueries/00000.parquet",
        "estimates/groups/nation/00000.parquet",
        "estimates/groups/county/00000.parquet",
        "release-unchecked/group_totals.csv",
        "release-unchecked/group_sizes.parquet",
        "validation/checks.json",
        "release",
        "report",
    ],
)
def test_a_run_killed_at_any_moment_resumes(
    spineflow, real_server, tmp_path: Path, moment: str
) -> None:
    kill_and_resume(spineflow, tmp_path, moment, **real_server.environment)
