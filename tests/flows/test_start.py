"""What a command imports before it answers: not what only runs need, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("prefect", "great_expectations", "scipy.stats", "matplotlib", "altair")
"""Packages of which the first two take one and three seconds of processor time."""

PRESETS = ("pl94_2020_us", "block_tables_2010")

COMMAND = f"""
import sys
from spineflow.flows.cli import main
code = 0
for command in sys.argv[1:]:
    try:
        code = code or main(command.split())
    except SystemExit as ended:
        code = ended.code
names = {HEAVY}
print("imported:", *(name for name in names if name in sys.modules))
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


def ended(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """What a process says that runs some commands, until one fails."""
    begun = [sys.executable, "-c", COMMAND, *commands]
    return subprocess.run(begun, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def census(tmp_path: Path) -> Path:
    (tmp_path / "areas.csv").write_text("area,name\na,Aldea\nb,Burgo\n")
    (tmp_path / "people.csv").write_text("area,sex\na,F\na,M\nb,F\n")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Which of the packages a command had imported when it ended."""
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.slow
def test_help_and_budgets_import_nothing_heavy(census: Path) -> None:
    """One command after the other in one process, which would have what any of them imports."""
    for preset in PRESETS:
        (census / f"{preset}.toml").write_text(
            f'preset = "{preset}"\n[input]\npersons = "p.csv"\nunits = "u.csv"\n'
            'geography = "g.txt"\n[privacy]\ndataset = "start"\nledger = "ledger.db"\n'
        )
    budgets = (f"budget topdown {name}.toml" for name in ("settings", *PRESETS))
    done = ended(census, "--help", "run --help", *budgets)
    assert done.returncode == 0, done.stderr
    assert not imported(done)
