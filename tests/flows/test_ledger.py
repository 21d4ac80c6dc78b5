"""Spending privacy loss through the command line."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import DERIVED, RunDirectory
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from tests.flows.in_process import stages_in_process, uncompared
from tests.tasks.topdown.offices import budget

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a finished run, `first`, with its input and ledger, and a copy of all that."""
    place, kept = (tmp_path_factory.mktemp(name) for name in ("place", "kept"))
    generate_county(place, persons=500, seed=8)
    (place / "settings.toml").write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n[run]\nuniverses = ["units"]\n'
        "[release]\nmargins = false\ntables = false\n"
    )
    with stages_in_process(judged_twice=False), uncompared():
        assert run(place / "settings.toml", "first")[0] == 0
    shutil.copytree(place, kept, dirs_exist_ok=True)
    return place, kept


@pytest.fixture
def settings(finished: tuple[Path, Path]) -> Path:
    """Settings of a run that has finished beside them and is not resumed: it is a copy, put back
    where it was made, since a run remembers where its ledger is."""
    place, kept = finished
    shutil.rmtree(place)
    shutil.copytree(kept, place)
    return place / "settings.toml"


def run(settings: Path, name: str, *overrides: str) -> tuple[int, RunDirectory]:
    directory = RunDirectory(settings.parent / name)
    arguments = ["run", "topdown", str(settings), "--run-dir", str(directory.root)]
    for override in overrides:
        arguments += ["--set", override]
    return main(arguments), directory


def is_unmeasured(directory: RunDirectory) -> bool:
    return not list(directory.root.rglob("dpqueries/*")) and not directory.release.exists()


@pytest.mark.usefixtures("in_process", "uncompared")
def test_runs_add_up_and_the_cap_stops_them(settings: Path, capsys) -> None:
    ledger = open_ledger(settings.parent / "ledger.db", must_exist=True)
    spent = summary(ledger)["datasets"]["county"]["rho"]
    assert spent == "11417641/152349649"
    file = ["--ledger", str(ledger.path)]
    assert main(["ledger", "set-cap", "county", "1/10", *file]) == 0
    capsys.readouterr()
    code, second = run(settings, "second")
    assert code == 3
    assert is_unmeasured(second)
    assert "raise the cap" in capsys.readouterr().err
    assert main(["ledger", "set-cap", "county", "1/5", *file]) == 0
    assert main(["resume", str(second.root)]) == 0
    capsys.readouterr()
    assert main(["ledger", "--json", *file]) == 0
    shown = json.loads(capsys.readouterr().out)["datasets"]["county"]
    assert shown["rho"] == "22835282/152349649"
    assert len(shown["products"]["topdown"]["draws"]) == 2


@pytest.mark.parametrize("damage", ["corrupt", "missing", "unwritable"])
@pytest.mark.usefixtures("in_process", "uncompared")
def test_a_ledger_that_cannot_be_trusted_stops_the_run(settings: Path, damage: str, capsys) -> None:
    file = settings.parent / "ledger.db"
    if damage == "corrupt":
        file.write_bytes(b"no ledger" * 500)
    else:
        file.unlink()
    if damage == "unwritable":
        file.mkdir()
    code, second = run(settings, "second")
    assert code == 3
    assert is_unmeasured(second)
    assert "ledger" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process", "uncompared")
def test_a_charge_survives_the_run_that_made_it(settings: Path) -> None:
    """Charged, then lost before any measurement was published: resuming charges nothing."""
    code, own = run(settings, "own")
    assert code == 0
    with sqlite3.connect(settings.parent / "ledger.db") as connection:
        connection.execute("DELETE FROM published")
    connection.close()
    for name in ("measurements", *DERIVED):
        shutil.rmtree(own.root / name, ignore_errors=True)
    manifest = own.read_manifest()
    del manifest["stages"]["ledger"]
    own.write_manifest(manifest)
    assert main(["resume", str(own.root)]) == 0
    ledger = open_ledger(settings.parent / "ledger.db", must_exist=True)
    assert len(summary(ledger)["datasets"]["county"]["products"]["topdown"]["draws"]) == 2


SUPPLEMENTAL = """\
preset = "supplemental_dhc_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
"""
LEVELS = ("nation", "tract", "block")
DECLARED = """\
[input]
blocks = "grfc.txt"
homes = "units.parquet"
[privacy]
dataset = "tenures"
ledger = "ledger.db"
[census.geography]
table = "blocks"
geolevels = ["nation", "tract", "block"]
columns = { tract = "TABTRACTCE", block = "OIDTABBLK" }
[census.attributes.tenure]
column = "TEN"
levels = { owned = ["1", "2"], rented = ["3", "4"] }
[census.universes.households]
table = "homes"
area = "OIDTB"
where = { RTYPE = ["2"], VACS = ["0"] }
attributes = ["tenure"]
[geography]
spine = "conventional"
[run]
universes = ["households"]
"""


def test_tenure_alone_is_refused_after_the_supplemental_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_county(tmp_path / "raw", persons=4000, seed=1)
    synthesize_households(tmp_path / "raw", tmp_path, seed=1)
    files = {"supplemental": SUPPLEMENTAL, "declared": DECLARED + budget("households", LEVELS)}
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)

    def run(product: str, name: str) -> int:
        file, folder = str(tmp_path / f"{name}.toml"), str(tmp_path / name)
        with stages_in_process(judged_twice=False):
            return main(["run", product, file, "--run-dir", folder])

    assert run("supplemental-dhc", "supplemental") == 0
    capsys.readouterr()
    assert run("topdown", "declared") == 3
    assert "ledger knows as dataset 'county'" in capsys.readouterr().err
