"""Detailed groups through the command: parameters that are edited, and margins that are wanted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory


def spent(folder: Path) -> list[dict[str, str]]:
    datasets = summary(open_ledger(folder / "ledger.db", must_exist=True))["datasets"]
    return datasets["groups"]["products"]["detailed-groups"]["draws"]


@pytest.mark.slow
def test_parameters_of_a_run_are_not_to_be_edited(finished_run, tmp_path: Path, capsys) -> None:
    """Their copies scale the noise that is still to be drawn.

    Threat model: files of a run edited after the charge.
    """
    shutil.copytree(finished_run("detailed groups").run.root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    config = run.root / "parameters" / "config.json"
    config.write_text(config.read_text().replace("0.25", "2.5"))
    assert main(["resume", str(run.root)]) == 2
    assert "config.json has been edited since the run was charged" in capsys.readouterr().err
