"""What the page of a run says in the UI: of one that was refused, of one that somebody cancels."""

from __future__ import annotations

import json
import time
import urllib.request
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from spineflow.flows.progress import bars
from spineflow.flows.results import key_of
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory

PATIENCE = 600


def asked(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def runs_of(api: str, folder: Path) -> list[dict]:
    """The flow runs of stages that name a run directory."""
    found = asked(f"{api}/flow_runs/filter", {})
    return [run for run in found if run["parameters"].get("run_directory") == str(folder)]


def messages_of(api: str, run: dict) -> list[str]:
    """What the log of a flow run and of its tasks says; it arrives a moment later."""
    wanted = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
    deadline = time.monotonic() + 60
    while not asked(f"{api}/logs/filter", wanted):
        assert time.monotonic() < deadline, "no logs arrived"
        time.sleep(0.5)
    time.sleep(3)
    return [entry["message"] for entry in asked(f"{api}/logs/filter", wanted)]


def test_bars_show_what_is_done_and_what_is_left() -> None:
    text = bars({"ingest": (1, 1, 2.2), "persons measure Block": (2, 8, 6.0), "x": (0, 1, 0.0)})
    _, _, whole, part, none = text.splitlines()
    assert whole.count("█") == 20 and "| 1 of 1 | 2 s |" in whole
    assert part.count("█") == 5 and "| 2 of 8 | about 18 s left |" in part
    assert "█" not in none


@pytest.mark.soak
def test_a_refusal_says_which_rules_are_not_met_and_no_more(
    spineflow, real_server, settings_text: str, county: Path, tmp_path: Path
) -> None:
    persons = pd.read_parquet(county / "persons.parquet")
    persons.loc[5, "CENRACE"] = "77"
    persons.to_parquet(tmp_path / "persons.parquet")
    text = settings_text.replace(str(county / "persons.parquet"), "persons.parquet")
    (tmp_path / "settings.toml").write_text(text)
    command = ("run", "topdown", "settings.toml", "--run-dir", "run")
    code, output, _ = spineflow(*command, folder=tmp_path, **real_server.environment).ended()
    assert (code, output) == (2, "")

    api = real_server.environment["PREFECT_API_URL"]
    (run,) = runs_of(api, tmp_path / "run")
    artifacts = asked(
        f"{api}/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}}
    )
    (rules,) = [one for one in artifacts if one["key"] == "failed-rules"]
    rows = json.loads(rules["data"])
    assert rows and all(set(row) == {"table", "rule that is not met"} for row in rows)
    assert any("cenrace" in row["rule that is not met"] for row in rows)
    said = messages_of(api, run)
    assert any("CENRACE" in message for message in said)
    assert not any("Traceback" in message for message in said)
    assert not any("meets its rules" in message for message in said)


@pytest.mark.soak
def test_cancelling_in_the_ui_stops_the_command(
    spineflow, real_server, settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text(settings_text)
    set_caps(open_ledger(tmp_path / "ledger.db"), None, Caps(Fraction(9)))
    run = RunDirectory(tmp_path / "run")
    slowed = (
        "import sys, time\nfrom spineflow.flows.cli import main\n"
        "import spineflow.tasks.topdown.estimation.steps as steps\n"
        "from spineflow.tasks.runs import steps as frame\noriginal = frame.opened\n"
        "def opened(*arguments):\n    time.sleep(1)\n    return original(*arguments)\n"
        "frame.opened = opened\nsys.exit(main(sys.argv[1:]))"
    )
    command = spineflow(
        *("run", "topdown", "settings.toml", "--run-dir", str(run.root)),
        folder=tmp_path,
        program=slowed,
        **real_server.environment,
    )
    command.wait_for(run.root / "measurements/persons/US/dpqueries/00000.parquet")
    api = real_server.environment["PREFECT_API_URL"]
    (flow_run,) = runs_of(api, run.root)
    # What the button of the UI asks for.
    cancelling = {"state": {"type": "CANCELLING", "name": "Cancelling"}, "force": False}
    asked(f"{api}/flow_runs/{flow_run['id']}/set_state", cancelling)
    code, output, errors = command.ended()
    assert (code, output) == (1, "")
    assert errors.startswith("spineflow: The run was cancelled; continue it with 'spineflow resume")
    assert errors.count("\n") == 1
    assert run.read_manifest()["status"] == "cancelled"
    assert not run.release.exists()
    (flow_run,) = runs_of(api, run.root)
    assert flow_run["state_type"] == "CANCELLED"

    resumed = spineflow("resume", str(run.root), folder=tmp_path, **real_server.environment)
    assert resumed.ended()[0] == 0
    assert run.read_manifest()["status"] == "complete"


@pytest.mark.parametrize(
    ("text", "key"),
    [("budget-persons", "budget-persons"), ("budget-Ältere über 15", "budget-ltere-ber-15")],
)
def test_keys_of_tables_are_such_as_the_server_takes(text: str, key: str) -> None:
    assert key_of(text) == key
