"""What a command imports before it answers: not what only runs need, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("prefect", "great_expectations", "scipy.stats", "matplotlib", "altair")
"""Packages of which the first two take three seconds of processor time each."""

COMMAND = f"""
import sys
from spineflow.flows.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print("imported:", *(name for name in {HEAVY} if name in sys.modules))
sys.exit(code)
"""

SETTINGS = """
[census.geography]
table = "areas"
geolevels = ["country", "area"]
[census.attributes]
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
[census.universes.people]
table = "people"
attributes = ["sex"]
area = "area"
[input]
areas = "areas.csv"
people = "people.csv"
[privacy]
dataset = "start"
ledger = "ledger.db"
[geography]
spine = "conventional"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other = { total = "1/2", detailed = "1/2" }
"""


def ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def census(tmp_path: Path) -> Path:
    (tmp_path / "areas.csv").write_text("area,name\na,Aldea\nb,Burgo\n")
    (tmp_path / "people.csv").write_text("area,sex\na,F\na,M\nb,F\n")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    (["--help"], ["budget", "topdown", "settings.toml"], ["check", "topdown", "settings.toml"]),
    ids=lambda arguments: arguments[0],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_need(
    arguments: list[str], census: Path
) -> None:
    done = ended(census, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported:"


@pytest.mark.slow
def test_a_check_finds_what_breaks_a_rule_all_the_same(census: Path) -> None:
    (census / "people.csv").write_text("area,sex\na,F\na,X\nb,F\n")
    done = ended(census, "check", "topdown", "settings.toml")
    assert done.returncode == 2, done.stderr
    assert "people.csv: sex must have a level" in done.stderr
    assert done.stdout.splitlines()[-1] == "imported:"
