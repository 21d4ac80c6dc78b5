"""The whole DAG of detailed groups, through the command: results, refusals, interruptions."""

from __future__ import annotations

import json
import shutil
import tomllib
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import RunDirectory, remove_derived

from tests.flows.commands import NO_CAP

FILES = ("t1.csv", "t2.csv", "population_groups.parquet")


def write_settings(folder: Path, source: Path, *sections: str) -> Path:
    """Settings of a private run of a copy of the generated input."""
    shutil.copytree(source / "params", folder / "params", dirs_exist_ok=True)
    shutil.copytree(source / "data", folder / "data", dirs_exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(
        '[input]\nparameters = "params"\ndata = "data"\n[privacy]\ndataset = "groups"\n'
        + "\n".join(sections)
    )
    return file


def spent(folder: Path) -> list[dict[str, str]]:
    datasets = summary(open_ledger(folder / "ledger.db", must_exist=True))["datasets"]
    return datasets["groups"]["products"]["detailed-groups"]["draws"]


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob(pattern)
        if path.is_file()
    }


@pytest.fixture(scope="module")
def finished(prefect_server, groups_input: Path, tmp_path_factory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("finished-groups")
    settings = write_settings(folder, groups_input, "[mechanism]", "coterminous = true")
    run = RunDirectory(folder / "run")
    assert main(["run", "detailed-groups", str(settings), "--run-dir", str(run.root)]) == 0
    return run


@pytest.mark.slow
def test_a_private_run_is_whole(finished: RunDirectory) -> None:
    assert {path.name for path in finished.release.iterdir()} >= set(FILES)
    t1 = pd.read_csv(finished.release / "t1.csv", sep="|", dtype=str)
    assert {"USA", "PR-STATE", "TRACT"} <= set(t1["REGION_TYPE"])
    manifest = finished.read_manifest()
    assert manifest["status"] == "complete"
    assert set(manifest["input_digests"]) == {"persons", "parameters"}
    assert list(manifest["stages"])[:5] == ["ingest", "counts", "ledger", "stage 1", "stage 2"]
    assert json.loads((finished.checks / "checks.json").read_text())["passed"]
    (draw,) = spent(finished.root.parent)
    # Levels 1 and 2 of six region types at 1/4 and 1/2, without level 1 of AIANNH areas.
    assert Fraction(draw["parameter"]) == 6 * Fraction(3, 4) - Fraction(1, 4)


@pytest.mark.slow
def test_a_second_run_reuses_what_is_there(finished: RunDirectory) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.root.rglob("*.parquet")}
    assert main(["resume", str(finished.root)]) == 0
    assert all(
        path.stat().st_mtime_ns == seen
        for path, seen in before.items()
        if "confidential" not in path.parts
    )


@pytest.mark.slow
def test_parameters_of_a_run_are_not_to_be_edited(
    finished: RunDirectory, tmp_path: Path, capsys
) -> None:
    """Their copies scale the noise that is still to be drawn."""
    shutil.copytree(finished.root.parent, tmp_path / "copy")
    run = RunDirectory(tmp_path / "copy" / "run")
    config = run.root / "parameters" / "config.json"
    config.write_text(config.read_text().replace("0.25", "2.5"))
    assert main(["resume", str(run.root)]) == 2
    assert "config.json has been edited since the run was charged" in capsys.readouterr().err


@pytest.mark.slow
def test_after_the_last_measurement_nothing_confidential_is_read(
    finished: RunDirectory, tmp_path: Path
) -> None:
    """What is derived comes back the same from measurements and public files alone."""
    shutil.copytree(finished.root.parent, tmp_path / "copy")
    run = RunDirectory(tmp_path / "copy" / "run")
    released = {name: (run.release / name).read_bytes() for name in FILES}
    shutil.rmtree(run.confidential)
    remove_derived(run)
    assert main(["resume", str(run.root)]) == 0
    assert {name: (run.release / name).read_bytes() for name in FILES} == released


@pytest.mark.slow
def test_commands_describe_a_run(groups_input: Path, tmp_path: Path, capsys) -> None:
    settings = write_settings(tmp_path, groups_input)
    assert main(["check", "detailed-groups", str(settings)]) == 0
    assert "in order" in capsys.readouterr().out
    assert main(["budget", "detailed-groups", str(settings)]) == 0
    assert "unbounded" in capsys.readouterr().out
    assert main(["budget", "detailed-groups", str(settings), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"us", "pr"}
    assert report["us"]["rho"] == "17/2"
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_wanted_margins_set_the_budgets_that_a_run_keeps(
    groups_input: Path, tmp_path: Path, capsys
) -> None:
    """Shown by check and budget, frozen with the run, charged, and held against a given budget."""
    wanted = "[mechanism]", "run_pr = false", "[mechanism.margins.TRACT]", "2 = 7"
    file = write_settings(tmp_path, groups_input, *wanted)
    assert main(["check", "detailed-groups", str(file)]) == 0
    assert "95 % margin wanted" in capsys.readouterr().out
    assert main(["budget", "detailed-groups", str(file), "--json"]) == 0
    levels = json.loads(capsys.readouterr().out)["us"]["levels"]
    (tract,) = (item for item in levels if item["margin_wanted"] is not None)
    assert (tract["region_type"], tract["level"], tract["margin"]) == ("TRACT", 2, 7)
    run = tmp_path / "run"
    assert main(["run", "detailed-groups", str(file), "--run-dir", str(run)]) == 0
    frozen = tomllib.loads((run / "settings.toml").read_text())["mechanism"]
    assert frozen["margins"] == {"TRACT": {"2": 7}}
    assert frozen["budgets"] == {"TRACT": {"2": tract["budget"]}}
    (draw,) = spent(tmp_path)
    assert Fraction(draw["parameter"]) == sum(Fraction(item["budget"]) for item in levels)
    rows = pd.read_parquet(run / "release" / "population_groups.parquet")
    own = rows[(rows["region_type"] == "TRACT") & (rows["iteration_level"] == 2)]
    assert set(own[own["age_start"].notna()]["margin"]) <= {7} and len(own)
    file.write_text(file.read_text() + '\n[mechanism.budgets.TRACT]\n2 = "1/100"\n')
    capsys.readouterr()
    assert main(["run", "detailed-groups", str(file), "--run-dir", str(tmp_path / "b")]) == 2
    assert "remove the budget, or give it" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def spoil(file: str, old: str, new: str):
    def change(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def blank_age(folder: Path) -> None:
    path = folder / "data" / "person-records.txt"
    lines = path.read_text().splitlines()
    lines[5] = lines[5][3:]
    path.write_text("\n".join(lines) + "\n")


def block_twice(folder: Path) -> None:
    path = folder / "data" / "GRF-C.txt"
    path.write_text(path.read_text() + path.read_text().splitlines()[3] + "\n")


def block_missing(folder: Path) -> None:
    path = folder / "data" / "GRF-C.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[9:]]) + "\n")


def code_twice(folder: Path) -> None:
    path = folder / "params" / "race-and-ethnicity-code-to-iteration.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")


BEFORE_THE_RUN = {
    "thresholds out of order": (
        spoil("params/config.json", "200,", "20,"),
        "config.json: thresholds_p '(USA, 1)' must be in ascending order",
    ),
    "budget negative": (
        spoil("params/config.json", '_usa": 0.25', '_usa": -0.25'),
        "privacy_budget_p_level_1_usa is negative",
    ),
    "code mapped twice": (code_twice, "is listed more than once"),
    "no configuration": (
        lambda folder: (folder / "params" / "config.json").unlink(),
        "[mechanism]: the key 'run_us' is missing",
    ),
    "no specification": (
        lambda folder: (folder / "params" / "race-and-ethnicity-codes.txt").unlink(),
        "race-and-ethnicity-codes.txt: the file does not exist",
    ),
    "two inputs": (
        spoil("settings.toml", 'data = "data"', 'data = "data"\npersons = "p"'),
        "[input] needs either data, or all of persons, units and geography",
    ),
    "unknown region type": (
        spoil("settings.toml", "[privacy]", '[mechanism.budgets.WARD]\n1 = "1"\n[privacy]'),
        "mechanism.budgets.WARD must be one of USA",
    ),
}
"""What is refused before a run directory is made."""

AT_INGEST = {
    "block missing from the geography": (block_missing, "must be in the geography"),
    "block listed twice": (block_twice, "must occur once"),
    "blank age": (blank_age, "QAGE must be a whole number from 0 to 115"),
}


def refused(folder: Path, capsys) -> str:
    """The one sentence of a run that is refused with exit code 2."""
    arguments = ["run", "detailed-groups", f"{folder}/settings.toml", "--run-dir", f"{folder}/run"]
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith("spineflow: ")
    return errors


@pytest.mark.parametrize("case", BEFORE_THE_RUN)
def test_parameters_are_refused_before_anything_is_written(
    groups_input: Path, tmp_path: Path, capsys, case: str
) -> None:
    change, sentence = BEFORE_THE_RUN[case]
    write_settings(tmp_path, groups_input)
    change(tmp_path)
    assert sentence in refused(tmp_path, capsys)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("judged_in_process")
@pytest.mark.parametrize("case", AT_INGEST)
def test_bad_input_is_refused_and_nothing_is_measured(
    groups_input: Path, tmp_path: Path, capsys, case: str
) -> None:
    change, sentence = AT_INGEST[case]
    write_settings(tmp_path, groups_input)
    change(tmp_path)
    errors = refused(tmp_path, capsys)
    assert sentence in errors
    assert "rows break" not in errors
    run = tmp_path / "run"
    for folder in ("measurements", "release", "release-unchecked", "spine", "parameters"):
        assert not (run / folder).exists()
    assert not (tmp_path / "ledger.db").exists()


MOMENTS = [
    ("after", "os:replace", "detailed_groups/persons.parquet"),
    ("before", "os:replace", "detailed_groups_shards.json"),
    ("after", "spineflow.tasks.ledger.charging:charge", "detailed-groups"),
    ("before", "os:link", "run/measurements/detailed_groups_stage_1/us/TRACT/2"),
    ("after", "os:link", "run/measurements/detailed_groups_stage_1/us/COUNTY/2"),
    ("before", "spineflow.tasks.ledger.charging:record_publication", "detailed_groups/us/STATE/2"),
    ("after", "os:link", "run/measurements/detailed_groups/pr/PR-TRACT/2"),
    ("after", "os:replace", "suppressed/TRACT"),
    ("before", "os:rename", "release-unchecked"),
]
"""Before and after each of the two stages is published, and around them."""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=" ".join)
def test_killed_runs_are_continued_with_the_noise_they_drew(
    spineflow, real_server, groups_input: Path, tmp_path: Path, moment: tuple[str, str, str]
) -> None:
    settings = write_settings(tmp_path, groups_input)
    run = RunDirectory(tmp_path / "run")
    command = ("run", "detailed-groups", str(settings), "--run-dir", str(run.root))
    killed = spineflow(*command, folder=tmp_path, killed=moment, **real_server.environment)
    code, _, before_it_died = killed.ended()
    assert code == -9, f"the run was not killed: {before_it_died}"
    before = contents(run.root / "measurements", "*.parquet")

    resumed = spineflow("resume", str(run.root), folder=tmp_path, **real_server.environment)
    code, output, errors = resumed.ended()
    assert code == 0, errors
    told = [*before_it_died.splitlines(), *errors.splitlines()]
    told = [line for line in told if not line.startswith("note: ")]
    assert len(told) <= 1, "said once it is charged"
    assert all(line.startswith(NO_CAP) for line in told)
    assert "checks passed" in output
    after = contents(run.root / "measurements", "*.parquet")
    assert {name: after[name] for name in before} == before
    assert {path.suffix for path in run.root.rglob("*")}.isdisjoint({".part", ".unpublished"})
    assert len(spent(tmp_path)) == 1
