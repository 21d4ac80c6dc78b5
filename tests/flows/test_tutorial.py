"""The commands of docs/tutorial.md and README.md lead to a release of one's own table."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.flows.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("newcomer", ROOT / "docs" / "newcomer.py")
newcomer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(newcomer)


def run_commands(commands: str) -> None:
    """Run the lines that call spineflow, without their comments."""
    lines = [line.partition(" #")[0] for line in commands.splitlines() if "spineflow " in line]
    ours = [line.partition("spineflow ")[2].split() for line in lines if "git " not in line]
    assert len(ours) >= 3
    for arguments in ours:
        assert main(arguments) == 0, arguments


def test_the_tutorial_leads_to_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    newcomer.write_tables(tmp_path / "mine", 500)
    (tmp_path / "mine" / "settings.toml").write_text(newcomer.from_tutorial("toml"))
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name in ("residents", "areas"):
        header = (tmp_path / "mine" / f"{name}.csv").read_text().splitlines()[0]
        assert f"```\n{header}\n" in page
    run_commands(newcomer.from_tutorial("sh"))
    said = capsys.readouterr().out
    for line in (
        "charged rho 1/2 (about 0.5) to dataset 'my-town'.",
        "The cap is rho 1, of which 0 is spent; 0.5 would remain.",
        "The settings and the input are in order.",
        "epsilon 6.84 at delta 1e-10 (rho 0.5).",
        "12 checks passed",
    ):
        assert line in page and line in " ".join(said.split()), line
    (folder,) = (tmp_path / "mine" / "runs").glob("my-town-topdown-*")
    run = spineflow.open_run(folder)
    assert run.table("AGE_SEX").query("level == 'region'")["count"].sum() == len(run.microdata())
    for path in re.findall(r"^- `([\w./]+)`", page, re.MULTILINE):
        assert (folder / path).exists(), path


def test_the_settings_of_the_readme_release_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 80
    newcomer.write_tables(tmp_path, 300)
    for name, columns in re.findall(r"= \"(\w+\.csv)\" +# columns ([\w, ]+)", page):
        frame = pd.read_csv(tmp_path / name)[columns.split(", ")]
        frame.to_csv(tmp_path / name, index=False)
    (settings,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(settings, encoding="utf-8")
    (commands,) = re.findall(r"^```\n(spineflow .*?)^```", page, re.MULTILINE | re.DOTALL)
    run_commands(commands)
    assert list((tmp_path / "runs").glob("*/release/mdf_residents.csv"))
