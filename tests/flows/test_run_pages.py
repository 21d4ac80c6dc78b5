"""What the page of a run says in the UI: of one that was refused, of one that somebody cancels."""

from __future__ import annotations

import json
import urllib.request
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory


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


@pytest.mark.soak(40)
def test_cancelling_in_the_ui_stops_the_command(
    spineflow, real_server, settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text(settings_text)
    set_caps(open_ledger(tmp_path / "ledger.db"), None, Caps(Fraction(9)))
    run = RunDirectory(tmp_path / "run")
    slowed = (
        "import sys, time\nfrom spineflow.flows.cli import main\n"
        "import spineflow.tasks.topdown.estimation.steps as steps\n"
        "from spineflow.tasks.runs import steps as frame\noriginal = frame.load_run\n"
        "def load_run(*arguments):\n    time.sleep(1)\n    return original(*arguments)\n"
        "frame.load_run = load_run\nsys.exit(main(sys.argv[1:]))"
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
