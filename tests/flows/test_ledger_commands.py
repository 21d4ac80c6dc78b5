"""The command for ledgers: made with caps, shown, capped; and reports on runs that were edited."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.running import prepare, warned_of_charge
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

PRESETS = Path(__file__).resolve().parents[2] / "flows" / "settings"


@pytest.fixture
def ledger(tmp_path: Path) -> list[str]:
    return ["--ledger", str(tmp_path / "ledger.db")]


def shown(ledger: list[str], capsys) -> dict:
    capsys.readouterr()
    assert main(["ledger", "--json", *ledger]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_ledger_is_made_with_its_caps(ledger: list[str], capsys) -> None:
    caps = ["--cap", "3", "--cap", "town=1/2", "--delta-cap", "1e-6"]
    assert main(["ledger", "init", *caps, *ledger]) == 0
    said = capsys.readouterr().out
    assert "has a cap of rho 3 and delta 1e-6" in said and "town" in said
    found = shown(ledger, capsys)
    assert (found["cap"], Fraction(found["delta_cap"])) == ("3", Fraction(1, 10**6))
    assert found["datasets"]["town"]["cap"] == "1/2"
    assert main(["ledger", "set-cap", "town", "2", "--delta-cap", "1e-9", *ledger]) == 0
    town = shown(ledger, capsys)["datasets"]["town"]
    assert (town["cap"], Fraction(town["delta_cap"])) == ("2", Fraction(1, 10**9))


def test_a_ledger_has_caps_of_epsilon(ledger: list[str], capsys) -> None:
    caps = ["--epsilon-cap", "16.5@1e-10", "--epsilon-cap", "town=3@1e-9"]
    assert main(["ledger", "init", *caps, *ledger]) == 0
    found, delta = shown(ledger, capsys), str(Fraction(1, 10**10))
    assert found["epsilon_cap"] == {"epsilon": "33/2", "delta": delta, "planned": False}
    assert Fraction(found["datasets"]["town"]["epsilon_cap"]["delta"]) == Fraction(1, 10**9)
    planned = ["--epsilon-cap", "20@1e-10", "--planned"]
    assert main(["ledger", "set-cap", "town", *planned, *ledger]) == 0
    town = shown(ledger, capsys)["datasets"]["town"]
    assert town["epsilon_cap"] == {"epsilon": "20", "delta": delta, "planned": True}
    assert (town["cap"], town["epsilon"]["exact"]) == (None, None)
    assert main(["ledger", "show", *ledger]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "; the cap is epsilon 20.00 at delta 1e-10, of runs planned beforehand." in text


@pytest.mark.parametrize(
    "cap",
    [
        "--cap=lots",
        "--cap=0",
        "--delta-cap=1",
        "--cap=town=-1",
        "--epsilon-cap=16.5",
        "--epsilon-cap=0@1e-10",
        "--epsilon-cap=town=1@1",
        "--planned",
    ],
)
def test_a_cap_that_is_none_makes_no_ledger(ledger, tmp_path: Path, cap: str) -> None:
    assert main(["ledger", "init", cap, *ledger]) == 2
    assert not (tmp_path / "ledger.db").exists()


def begun(tmp_path: Path, capsys):
    """A run that looks finished, as far as reports ask."""
    file = tmp_path / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "town"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    run = prepare(settings, tmp_path / "run")
    run.release.mkdir()
    return run, capsys.readouterr().out, settings


def test_a_first_run_without_a_cap_warns_before_it_draws(tmp_path: Path, capsys) -> None:
    run, _, settings = begun(tmp_path, capsys)
    ended, told = warned_of_charge(run, settings), {}
    for stage in ("ingest", "ledger", "measure"):
        ended(stage)
        told[stage] = capsys.readouterr().err
    assert (told["ingest"], told["measure"]) == ("", "")
    assert told["ledger"].startswith("warning: there is no ledger")
    assert "ledger init" in told["ledger"]


def test_no_report_is_written_on_edited_settings(tmp_path: Path, capsys) -> None:
    """Else the accuracy against the truth would go into the public report.

    Threat model: files of a run edited after the charge.
    """
    run, *_ = begun(tmp_path, capsys)
    text = run.settings.read_text()
    assert "confidential = true" in text
    run.settings.write_text(text.replace("confidential = true", "confidential = false"))
    for command in (["report", str(run.root)], ["report", str(run.root), str(run.root)]):
        assert main(command) == 2
        assert "has been edited since the run began" in capsys.readouterr().err
    assert not run.report.exists()


def test_no_intervals_are_computed_on_edited_settings(tmp_path: Path, capsys) -> None:
    """They would weigh measurements by a budget that was not spent.

    Threat model: files of a run edited after the charge.
    """
    run, *_ = begun(tmp_path, capsys)
    text = run.settings.read_text()
    assert "293764/114921" in text
    run.settings.write_text(text.replace("293764/114921", "293765/114921"))
    assert main(["intervals", str(run.root), "--query", "total"]) == 2
    assert "has been edited since the run began" in capsys.readouterr().err
    assert not (run.root / "intervals").exists()


def test_ledgers_of_this_machine_are_listed_joined_and_forgotten(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINEFLOW_LEDGERS", str(tmp_path / "ledgers"))
    one, other, third = (tmp_path / f"{name}.db" for name in ("one", "other", "third"))
    for path, cap in ((one, "town=5"), (other, "town=2"), (third, "city=1")):
        assert main(["ledger", "init", "--ledger", str(path), "--cap", cap]) == 0

    def listed() -> list[str]:
        capsys.readouterr()
        assert main(["ledger", "list"]) == 0
        return capsys.readouterr().out.splitlines()

    assert listed() == [str(one), str(other), str(third)]
    assert main(["ledger", "join", str(other), "--ledger", str(one)]) == 0
    assert listed() == [str(one), str(third)]
    for path in (one, other):
        found = shown(["--ledger", str(path)], capsys)
        assert found["ledger"] == str(one)
        assert found["datasets"]["town"]["cap"] == "2"
    assert main(["ledger", "join", str(other), "--ledger", str(one)]) == 2
    third.unlink()
    assert listed() == [str(one), f"{third} is missing"]
    assert main(["ledger", "forget", str(third)]) == 0
    assert listed() == [str(one)]
    for action in ("join", "forget"):
        assert main(["ledger", action, "--ledger", str(one)]) == 2


SMALL = """
[input]
sizes = "sizes.csv"
regions = "regions.csv"
[privacy]
dataset = "homes"
ledger = "ledger.db"
rho = "1/2"
[invariants]
groups = true
[mechanism]
largest_size = 3
"""


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    regions = "level,region,parent\nnation,n,\ncounty,a,n\ncounty,b,n\n"
    (tmp_path / "regions.csv").write_text(regions)
    (tmp_path / "sizes.csv").write_text("region,size,count\na,1,4\nb,2,5\n")
    file = tmp_path / "settings.toml"
    file.write_text(SMALL)
    return file


def test_a_check_says_what_is_charged_and_what_remains(homes: Path, ledger, capsys) -> None:
    assert main(["check", "group-sizes", str(homes)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "charged rho 2 to dataset 'homes'" in said and "There is no ledger" in said
    assert main(["ledger", "init", "--cap", "9/2", *ledger]) == 0
    assert main(["check", "group-sizes", str(homes)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rho 9/2 (about 4.5), of which 0 is spent; 2.5 would remain" in said
    assert shown(ledger, capsys)["datasets"] == {}, "nothing is entered"


@pytest.mark.parametrize("cap", ["--cap=3/2", "--epsilon-cap=1@1e-10"])
def test_a_check_refuses_what_the_ledger_would(homes: Path, ledger, capsys, cap: str) -> None:
    assert main(["ledger", "init", cap, *ledger]) == 0
    assert main(["check", "group-sizes", str(homes)]) == 3
    refused = capsys.readouterr()
    assert "would be refused: dataset 'homes'" in refused.err and "in order" not in refused.out
