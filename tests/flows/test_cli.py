"""The command line as a user meets it: help, budgets, refusals."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory, start_run

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS, encoding="utf-8")
    return path


def test_help_names_the_commands_and_exit_codes(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("demo", "run", "resume", "check", "budget", "exit codes"):
        assert word in shown


def test_budget_as_json(settings: Path, capsys) -> None:
    assert main(["budget", "topdown", str(settings), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["persons"]["rho"] == "293764/114921"
    assert round(report["persons"]["epsilon"]["tight"], 2) == 17.14
    assert round(report["units"]["epsilon"]["tight"], 2) == 2.47
    assert round(report["persons"]["epsilon"]["exact"], 2) == 16.47
    assert round(report["units"]["epsilon"]["exact"], 2) == 2.36
    total = next(
        query
        for query in report["persons"]["queries"]
        if (query["geolevel"], query["query"]) == ("State", "total")
    )
    assert total["share"] == "5433120/16793603"
    assert set(report["persons"]["block_within"]) == {
        "US",
        "State",
        "County",
        "Tract",
        "Block_Group",
    }


@pytest.mark.parametrize(
    "written, rho",
    [("1e-3", "1/1000"), ("0.1", "1/10"), ("1/3", "1/3"), ('"0.50"', "1/2"), ("3", "3")],
)
def test_numbers_of_set_are_as_exact_as_they_are_written(
    settings: Path, capsys, written: str, rho: str
) -> None:
    """Shells take quotes away; no binary float stands for what was written."""
    override = f"--set=budget.persons.rho={written}"
    assert main(["budget", "topdown", str(settings), override, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["persons"]["rho"] == rho


def test_an_epsilon_under_exact_accounting_allows_more_rho(settings: Path, capsys) -> None:
    exact = [
        "--set=run.universes=['units']",
        '--set=budget.units.epsilon="2.475"',
        "--set=budget.units.accounting=exact",
    ]
    assert main(["budget", "topdown", str(settings), *exact, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["units"]
    assert Fraction(11417641, 152349649) * 1.09 < Fraction(report["rho"]) < 0.0819
    assert 2.4749 < report["epsilon"]["exact"] <= 2.475 < report["epsilon"]["tight"]


@pytest.mark.slow
def test_budget_as_tables_and_as_a_curve(settings: Path, capsys) -> None:
    curve = settings.parent / "curve.html"
    assert main(["budget", "topdown", str(settings), "--curve", str(curve)]) == 0
    shown = capsys.readouterr().out
    assert "epsilon 17.14 at delta 1e-10 (simple" in shown and "hhinstlevels" in shown
    assert "exactly 16.47 at" in shown
    assert "from everything that is released with a probability of at most 88 % for" in shown
    labels = curve.read_text(encoding="utf-8")
    assert "together, by rho 2.631" in labels and "delta" in labels
    for universe in ("persons", "units"):
        assert f"{universe}, exactly, at most" in labels
        assert f"{universe}, exactly, at least" in labels
    assert "false negatives, at least" in labels


def test_no_curve_without_noise(settings: Path, capsys) -> None:
    public = ["--set", "input.confidential=false", "--set", "privacy.infinite=true"]
    curve = settings.parent / "curve.html"
    assert main(["budget", "topdown", str(settings), *public, "--curve", str(curve)]) == 2
    assert not curve.exists()
    assert main(["budget", "topdown", str(settings), *public, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["persons"]["rho"] == "inf"


@pytest.mark.parametrize(
    "overrides, words",
    [
        (["run.wrokers=3"], ["run.wrokers", "did you mean 'workers'"]),
        (["nonsense.key=3"], ["unknown setting 'nonsense'"]),
        (['inputs.persons="p"', "input={}"], ["unknown setting 'inputs' (did you mean 'input'?)"]),
        (["input.person=p"], ["unknown setting 'input.person' (did you mean 'persons'?)"]),
        (['budget.persons.geolevels.Conty="1"'], ["'Conty'", "did you mean 'County'?"]),
        (['budget.persons.queries.Conty.total="1"'], ["'Conty'", "did you mean 'County'?"]),
        (["preset=pl94_202_us"], ["pl94_202_us", "pl94_2020_us"]),
        (["budget.persons.rho=nan"], ["budget.persons.rho", "is not a fraction"]),
        (["budget.persons.rho=true"], ["budget.persons.rho", "in quotes"]),
        (["budget.persons.rho=0"], ["budget.persons.rho", "positive"]),
        (['budget.persons.rho="-1/2"'], ["budget.persons.rho", "positive"]),
        (['budget.persons.rho="1e-400"'], ["budget.persons.rho", "positive"]),
        (
            [
                'workload.units.attributes=["hispanic"]',
                'workload.units.passes.other={least_squares=[["all"]], rounder=[["total"]]}',
                *(
                    f'budget.units.queries.{geolevel}.detailed="1"'
                    for geolevel in ("US", "State", "County", "Tract", "Block_Group", "Block")
                ),
            ],
            ["workload.units", "'hispanic'", "occupancy"],
        ),
        (['workload.units.attributes=["hispanic"]'], ["budget.units.queries", "missing"]),
        (['budget.persons.delta="2"'], ["budget.persons.delta", "below 1"]),
        (["budget.persons.accounting=exact"], ["budget.persons.accounting", "epsilon and delta"]),
        (["budget.persons.accounting=tight"], ["budget.persons.accounting", "exact"]),
        (["budget.persons.mechanism=gaussian"], ["budget.persons.mechanism"]),
        (["budget.persons.mechanism=discrete_laplace"], ["budget.persons", "epsilon"]),
        (['budget.persons.geolevels.US="104001/4099000"'], ["budget.persons.geolevels", "sum"]),
        (['budget.persons.geolevels.Tract="-687/4099"'], ["budget.persons.geolevels.Tract"]),
        (
            ["budget.persons.queries.US.sexx=0"],
            ["budget.persons.queries.US", "unknown query 'sexx'"],
        ),
        (["geography.spine=round"], ["geography.spine", "optimized"]),
        (["geography.fanout_cutoff=-1"], ["geography.fanout_cutoff"]),
        (["run.universes=[]"], ["universes"]),
        (["privacy.seed=3"], ["input.confidential = false"]),
        (["privacy.infinite=true"], ["input.confidential = false"]),
        (["privacy.dataset="], ["privacy.dataset"]),
        (["run.workers"], ["section.key=value"]),
    ],
    ids=lambda value: value[0].partition("=")[0] if isinstance(value, list) else None,
)
def test_bad_settings_are_refused_in_one_sentence(
    settings: Path, capsys, overrides: list[str], words: list[str]
) -> None:
    before = sorted(settings.parent.iterdir())
    arguments = ["run", "topdown", str(settings), "--run-dir", str(settings.parent / "run")]
    for override in overrides:
        arguments += ["--set", override]
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert all(word in message for word in words), message
    assert sorted(settings.parent.iterdir()) == before


@pytest.mark.parametrize("text", ["preset = ", "[input]\nx = 1\nx = 2\n"])
def test_broken_toml_is_refused(settings: Path, capsys, text: str) -> None:
    settings.write_text(text)
    assert main(["check", "topdown", str(settings)]) == 2
    assert "not valid TOML" in capsys.readouterr().err


def test_resume_of_nothing_is_refused(tmp_path: Path, capsys) -> None:
    assert main(["resume", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_run_directory_with_other_files_is_left_alone(settings: Path, capsys) -> None:
    folder = settings.parent / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    code = main(["run", "topdown", str(settings), "--run-dir", str(folder)])
    assert code == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_run_directory_of_another_product_is_left_alone(settings: Path, capsys) -> None:
    run = RunDirectory(settings.parent / "run")
    run.root.mkdir()
    start_run(run, product="trips", settings_text='[input]\ntrips = "trips.parquet"\n')
    before = run.manifest.read_text()
    assert main(["run", "topdown", str(settings), "--run-dir", str(run.root)]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err
    assert run.manifest.read_text() == before


@pytest.mark.parametrize("place", ["published", "file://{folder}/published"])
def test_a_place_that_is_taken_is_refused_before_anything_is_written(
    settings: Path, capsys, place: str
) -> None:
    folder = settings.parent
    (folder / "published").mkdir()
    (folder / "published" / "topdown.json").write_text('{"run_id": "other", "folder": "f"}')
    override = f"release.publish_to={place.format(folder=folder)}"
    run = folder / "run"
    command = ["run", "topdown", str(settings), "--run-dir", str(run), "--set", override]
    assert main(command) == 2
    assert "is the release of run other" in capsys.readouterr().err
    assert not run.exists()


def test_dask_without_its_package_is_refused(settings: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("spineflow.tasks.products.product.find_spec", lambda name: None)
    assert main(["budget", "topdown", str(settings), "--set", "run.runner=dask"]) == 2
    assert "spineflow[dask]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("spineflow resu", "resume"),
        ("spineflow run detailed-g", "detailed-groups"),
        ("spineflow run --run", "--run-dir"),
        ("spineflow ledger in", "init"),
        ("spineflow deploy gro", "group-sizes"),
    ],
)
def test_a_shell_completes_commands(tmp_path: Path, capsys, typed: str, completed: str) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    words = typed.split()
    bash = (
        f"source ./script; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _spineflow; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", bash], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tune", "it is a flow, which 'spineflow run tune' runs"),
        ("group_sizes", "'spineflow run group_sizes' runs"),
        ("ledgr", 'Did you mean "ledger"?'),
        ("nothing-like-it", "See 'spineflow --help'."),
    ],
)
def test_a_command_that_is_none_is_refused_with_what_was_meant(
    command: str, words: str, capsys
) -> None:
    assert main([command, "settings.toml"]) == 2
    error = capsys.readouterr().err
    assert command in error and words in error and error.count("\n") == 1
