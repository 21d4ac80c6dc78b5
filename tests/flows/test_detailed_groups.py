"""Detailed groups through the command: parameters that are edited, and margins that are wanted."""

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
from spineflow.tasks.runs.directory import RunDirectory


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


@pytest.mark.slow
def test_parameters_of_a_run_are_not_to_be_edited(finished_run, tmp_path: Path, capsys) -> None:
    """Their copies scale the noise that is still to be drawn."""
    shutil.copytree(finished_run("detailed groups").run.root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    config = run.root / "parameters" / "config.json"
    config.write_text(config.read_text().replace("0.25", "2.5"))
    assert main(["resume", str(run.root)]) == 2
    assert "config.json has been edited since the run was charged" in capsys.readouterr().err


@pytest.mark.soak(4)
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
