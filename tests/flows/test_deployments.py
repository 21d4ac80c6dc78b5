"""Deployments on a server, on PostgreSQL where it is here, run by a worker of a process pool."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from spineflow.flows.cli import main
from spineflow.flows.demo import DEMOS
from spineflow.flows.form import SettingsForm
from spineflow.flows.registry import MODULES, TITLES, entry_point, flow_of
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county

from tests.conftest import PrefectServer
from tests.services import INITDB, asked, free_port, postgres, running, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]

WITHOUT_BLOCKS = {
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    "PREFECT_UI_ENABLED": "false",
}
"""Environment of a server that registers no types of blocks, for which it imports all of Prefect's
collections, and copies no pages: nobody looks at them."""


@pytest.fixture(scope="module")
def server(real_server, tmp_path_factory) -> Iterator[dict[str, str]]:
    """Environment in which a Prefect server, and a worker of the pool `spineflow`, are running.

    The database is PostgreSQL if it is here, as in an office; that of other tests is SQLite.
    """
    folder = tmp_path_factory.mktemp("office")
    port = free_port()
    environment = os.environ | {
        "PREFECT_HOME": str(folder / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    with ExitStack() as stack:
        if INITDB:
            database = f"postgresql+asyncpg://{stack.enter_context(postgres(folder / 'postgres'))}"
            environment["PREFECT_API_DATABASE_CONNECTION_URL"] = database
        else:
            (folder / "home").mkdir()
            shutil.copy(real_server.new_database, folder / "home" / "prefect.db")
        start = [*prefect, "server", "start", "--port", str(port)]
        without_blocks = environment | WITHOUT_BLOCKS
        stack.enter_context(running(start, without_blocks, folder / "server.log"))
        api = environment["PREFECT_API_URL"]
        wait_until(lambda: asked(f"{api}/health"), "the Prefect server")
        with temporary_settings({PREFECT_API_URL: api}), redirect_stdout(StringIO()) as told:
            assert main(["deploy"]) == 0
        shown = told.getvalue()
        assert all(f"registered {name}/{TITLES[name]}" in shown for name in MODULES)
        worker = [*prefect, "worker", "start", "--pool", "spineflow"]
        stack.enter_context(running(worker, environment, folder / "worker.log"))
        yield environment


def run_deployment(server: dict[str, str], name: str, parameters: dict) -> dict:
    """Start a deployment as the UI does, and wait for the flow run to end."""
    api = server["PREFECT_API_URL"]
    title = urllib.parse.quote(TITLES[name])
    deployment = asked(f"{api}/deployments/name/{name}/{title}")
    created = asked(
        f"{api}/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters}
    )
    ended = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

    def finished() -> dict | None:
        run = asked(f"{api}/flow_runs/{created['id']}")
        return run if run and run["state_type"] in ended else None

    return wait_until(finished, "the flow run")


@pytest.mark.soak(40)
def test_a_worker_runs_a_deployment_to_its_release(server, tmp_path: Path) -> None:
    generate_county(tmp_path / "input", persons=FEWEST_PERSONS, seed=3)
    settings = tmp_path / "settings.toml"
    text = (DEMOS / "topdown.toml").read_text() + "[release]\nmargins = false\ntables = false\n"
    settings.write_text(text, encoding="utf-8")
    api = server["PREFECT_API_URL"]
    ledger = open_ledger(tmp_path / "ledger.db")
    set_caps(ledger, None, Caps(NEARLY_SPENT))
    asked(f"{api}/automations/", near_cap_automation())
    run = run_deployment(server, "topdown", {"settings_file": str(settings)})
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    releases = list((tmp_path / "runs").glob("demo-county-topdown-*/release/mdf_persons.parquet"))
    assert len(releases) == 1

    artifacts = asked(f"{api}/artifacts/filter", {})
    keys = {artifact["key"] for artifact in artifacts}
    assert {"checks", "certificate"} <= keys
    assert [one["data"] for one in artifacts if one["key"] == "progress-ledger"] == [100]
    results = [a for a in artifacts if a["key"] == "result" and a["flow_run_id"] == run["id"]]
    assert results and "Guarantee: " in results[0]["data"]
    assert {*run["tags"]} == {"spineflow", "demo-county", "topdown", "threads"}
    assert {one["flow_run_id"] for one in artifacts} == {run["id"]}
    tasks = asked(f"{api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    tags = {one["name"]: {*one["tags"]} for one in tasks}
    assert tags["charge ledger"] == {"topdown", "ledger"}
    assert tags["measure-persons-Block-00000"] == {"topdown", "measure"}
    expected = {"spineflow.release.published", "spineflow.ledger.near-cap", FIRED}
    wait_until(lambda: expected <= events_of(api), "the events of the run and its automation")


NEARLY_SPENT = Fraction("2.7")
"""A cap of which the run of the demonstration spends more than nine tenths."""

FIRED = "prefect.automation.action.executed"
"""The event with which the server tells that an automation has acted."""


def near_cap_automation() -> dict[str, Any]:
    """The automation of the kit, with an action that needs nobody to be told."""
    file = REPOSITORY / "deploy" / "near-cap.yaml"
    automation = yaml.safe_load(file.read_text(encoding="utf-8"))
    return automation | {"actions": [{"type": "do-nothing"}]}


def events_of(api: str) -> set[str]:
    """The names of the events that a server has kept."""
    found = asked(
        f"{api}/events/filter",
        {
            "limit": 50,
            "filter": {
                "event": {"prefix": ["spineflow.", "prefect.automation."]},
                "occurred": {"since": "2020-01-01T00:00:00Z"},
            },
        },
    )
    return {event["event"] for event in found["events"]} if found else set()


@pytest.mark.soak(40)
def test_a_refusal_reaches_the_ui_as_one_sentence(server, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    run = run_deployment(server, "topdown", {"settings_file": str(missing)})
    assert run["state_type"] == "FAILED"
    assert "no such settings file" in run["state"]["message"]
    api, title = server["PREFECT_API_URL"], urllib.parse.quote(TITLES["topdown"])
    deployment = asked(f"{api}/deployments/name/topdown/{title}")
    relative = {"parameters": {"settings_file": "settings.toml"}}
    assert asked(f"{api}/deployments/{deployment['id']}/create_flow_run", relative) is None


@pytest.mark.parametrize("command", ["deploy", "serve"])
def test_a_server_that_is_silent_is_told_of_with_its_setting(command: str, capsys) -> None:
    address = f"http://127.0.0.1:{free_port()}/api"
    with temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 0}):
        assert main([command, "topdown"]) == 1
    error = capsys.readouterr().err
    assert f"The Prefect server at {address} did not answer" in error
    assert "PREFECT_API_URL" in error and error.count("\n") == 1


def test_a_server_that_asks_for_a_password_is_told_of_with_its_setting(monkeypatch, capsys) -> None:
    response = httpx.Response(401, request=httpx.Request("GET", "http://127.0.0.1:1/api/hello"))
    monkeypatch.setattr(SyncPrefectClient, "hello", lambda self: response.raise_for_status())
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        assert main(["deploy", "topdown"]) == 1
    assert "asks for a password; set PREFECT_API_AUTH_STRING" in capsys.readouterr().err


def test_prefect_yaml_names_every_flow() -> None:
    """The descriptions are the flows' own, so that both ways of deploying say the same."""
    declared = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text(encoding="utf-8"))
    found = {deployment["entrypoint"]: deployment for deployment in declared["deployments"]}
    flows = {name: flow_of(name) for name in MODULES}
    assert {entrypoint: one["name"] for entrypoint, one in found.items()} == {
        entry_point(name): TITLES[name] for name in flows
    }
    assert not any("description" in one for one in found.values())
    assert len(set(TITLES.values())) == len(MODULES)
    assert len({flow.description for flow in flows.values()}) == len(MODULES)


def form_of(name: str) -> type[SettingsForm]:
    return get_type_hints(flow_of(name).fn)["settings"]


TopdownForm = form_of("topdown")


def test_a_form_gives_overrides() -> None:
    form = TopdownForm.model_validate(
        {
            "preset": "pl94_2020_us",
            "persons": "/data/persons.parquet",
            "disclosure": "may be disclosed",
            "rho_persons": "1/2",
            "universes": ["persons"],
            "workers": 3,
        }
    )
    assert set(form.overrides()) == {
        'preset="pl94_2020_us"',
        'input.persons="/data/persons.parquet"',
        "input.confidential=false",
        'budget.persons.rho="1/2"',
        'run.universes=[\n    "persons",\n]',
        "run.workers=3",
    }


def test_a_form_that_nobody_has_touched_changes_nothing() -> None:
    """In particular, no switch that is off makes input public."""
    for name in MODULES:
        kinds = {
            field.get("type") for field in form_of(name).model_json_schema()["properties"].values()
        }
        assert "boolean" not in kinds
        assert list(form_of(name)().overrides()) == []
    private = TopdownForm.model_validate({"disclosure": "confidential"})
    assert list(private.overrides()) == ["input.confidential=true"]


def test_settings_may_come_from_the_form_alone(tmp_path: Path) -> None:
    form = TopdownForm.model_validate(
        {name: f"/data/{name}" for name in ("persons", "units", "geography", "ledger")}
        | {"preset": "pl94_2020_us", "dataset": "town", "rho_persons": "1/2"}
    )
    settings = product("topdown").load(None, list(form.overrides()))
    assert settings.budget["persons"].rho == Fraction(1, 2)
    assert settings.input.paths()["persons"] == "/data/persons"
    with pytest.raises(InputRefused, match="the form: ledger.db is no full path"):
        without = form.model_copy(update={"ledger": None})
        product("topdown").load(None, list(without.overrides()))
    with pytest.raises(InputRefused, match="name a settings file, or fill in the form"):
        product("topdown").load(None)


def registered(api: str) -> list[dict]:
    """The deployments of the pool `spineflow`."""
    of_pool = {"work_pools": {"name": {"any_": ["spineflow"]}}}
    return asked(f"{api}/deployments/filter", of_pool)


@pytest.fixture
def registering(real_server: PrefectServer) -> Iterator[str]:
    """Address of the session's server, on which nothing stays registered."""
    api = real_server.environment["PREFECT_API_URL"]
    yield api
    for one in registered(api):
        url = f"{api}/deployments/{one['id']}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=10).close()


@pytest.mark.slow
def test_registering_again_keeps_what_people_set(registering: str) -> None:
    api = registering

    def deployments() -> dict[str, dict]:
        return {found["name"]: found for found in registered(api)}

    with temporary_settings({PREFECT_API_URL: api}):
        assert main(["deploy", "topdown", "trips"]) == 0
        made = deployments()
        assert set(made) == {TITLES["topdown"], TITLES["trips"]}
        theirs = {
            "tags": ["mine"],
            "parameters": {"settings_file": "/data/settings.toml"},
            "concurrency_limit": 1,
            "description": "an old description",
        }
        url = f"{api}/deployments/{made[TITLES['topdown']]['id']}"
        change(url, theirs)
        schedule = {"schedule": {"cron": "0 3 * * *"}, "active": True}
        assert asked(f"{url}/schedules", [schedule])
        assert main(["deploy"]) == 0
    again = deployments()
    assert set(again) == set(TITLES.values())
    kept = again[TITLES["topdown"]]
    assert kept["id"] == made[TITLES["topdown"]]["id"]
    assert kept["tags"] == ["mine", "spineflow"]
    assert kept["parameters"] == theirs["parameters"]
    assert kept["global_concurrency_limit"]["limit"] == 1
    assert [one["schedule"]["cron"] for one in kept["schedules"]] == ["0 3 * * *"]
    assert kept["description"] == flow_of("topdown").description

    # What cannot be is refused before a run is created.
    for settings in (
        {"rho_persons": "lots"},
        {"persons": "persons.parquet"},
        {"preset": "none"},
        {"dataset": "two words"},
        {"workers": "some"},
        {"workers": 0},
    ):
        assert created(f"{api}/deployments/{kept['id']}", {"settings": settings})[0] == 409
    assert created(f"{api}/deployments/{kept['id']}", {"settings_file": "s.toml"})[0] == 409
    good = {"settings": {"rho_persons": "1/2", "preset": "pl94_2020_us"}}
    assert created(f"{api}/deployments/{kept['id']}", good)[0] == 201


def created(deployment: str, parameters: dict) -> tuple[int, str]:
    """Status and text of the answer to a form that is sent off."""
    body = json.dumps({"parameters": parameters}).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{deployment}/create_flow_run", body, kind)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["detail"]


def change(url: str, body: dict) -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="PATCH"
    )
    urllib.request.urlopen(request, timeout=10).close()


@pytest.mark.slow
def test_deploying_needs_a_server(capsys) -> None:
    with temporary_settings({PREFECT_API_URL: None}):
        assert main(["deploy"]) == 2
    assert "prefect server start" in capsys.readouterr().err
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert main(["deploy", "topdwn"]) == 2
    assert 'Did you mean "topdown"?' in capsys.readouterr().err
