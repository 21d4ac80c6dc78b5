"""A newcomer's minutes as docs/library.md tells them: its settings fit the tables, its commands."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from spineflow.flows.cli import app, main

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "newcomer.py"


def test_the_settings_of_the_page_fit_the_tables(tmp_path: Path, capsys) -> None:
    spec = importlib.util.spec_from_file_location("newcomer", SCRIPT)
    newcomer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(newcomer)
    (settings,), (commands,) = newcomer.from_page("toml"), newcomer.from_page("sh")
    newcomer.write_tables(tmp_path, 500)
    assert len((tmp_path / "residents.csv").read_text().splitlines()) == 501
    (tmp_path / "settings.toml").write_text(settings)
    assert main(["check", "topdown", str(tmp_path / "settings.toml")]) == 0
    assert "in order" in capsys.readouterr().out
    ours = [line.partition("bin/spineflow ")[2] for line in commands.splitlines()]
    for arguments in filter(None, ours):
        app.parse_args(arguments.split(), exit_on_error=False)
    assert len(ours) == 5
