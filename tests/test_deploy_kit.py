"""The kit of deploy/: manifests that Kubernetes accepts, settings that Prefect knows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect.client.schemas.objects import FlowRun
from prefect.settings import Settings

from tests.services import asked, free_port, running, wait_until

KIT = Path(__file__).parents[1] / "deploy"
KUBERNETES = "1.34"


def manifests() -> list[Any]:
    return [
        pytest.param(one, id=f"{file.stem} {one['kind']} {one['metadata']['name']}")
        for file in sorted((KIT / "kubernetes").glob("*.yaml"))
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]


def validate(manifest: dict[str, Any]) -> None:
    """Raise for a manifest that Kubernetes would refuse, or with a field that it would drop."""
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(manifest, KUBERNETES, strict=True)


def containers(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
    yield from pod.get("initContainers", ())
    yield from pod.get("containers", ())


@pytest.mark.parametrize("manifest", manifests())
def test_kubernetes_accepts_every_manifest(manifest: dict[str, Any]) -> None:
    validate(manifest)


def test_an_unknown_field_of_a_manifest_is_refused() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "specs": {}}
    with pytest.raises(validator.ValidationError):
        validate(wrong)


@pytest.mark.parametrize("manifest", manifests())
def test_prefect_knows_every_setting_of_the_containers(manifest: dict[str, Any]) -> None:
    """A name that Prefect does not know would be ignored in silence."""
    known = {name.upper() for name in environment_names(Settings)}
    of_integrations = ("PREFECT_REDIS_", "PREFECT_INTEGRATIONS_")
    named = [one["name"] for container in containers(manifest) for one in container.get("env", ())]
    for name in (*named, *manifest.get("data", ())):
        if name.startswith("PREFECT_") and not name.startswith(of_integrations):
            assert name in known, name


def environment_names(model: Any, prefix: str = "prefect_") -> Iterator[str]:
    """The variables that the settings of Prefect are read from, as their models have them."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if hasattr(inner, "model_fields"):
            yield from environment_names(inner, f"{prefix}{name}_")
            continue
        yield f"{prefix}{name}"
        for alias in getattr(field.validation_alias, "choices", ()):
            if isinstance(alias, str):
                yield alias


@pytest.mark.soak(12)
def test_a_flow_run_becomes_a_job_that_goes_on_after_an_eviction() -> None:
    """The job has the shared folder, the list of ledgers and a second attempt."""
    worker = pytest.importorskip("prefect_kubernetes.worker")
    template = json.loads((KIT / "base-job-template.json").read_text(encoding="utf-8"))
    configuration = asyncio.run(
        worker.KubernetesWorkerJobConfiguration.from_template_and_values(template, {})
    )
    configuration.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="topdown"))
    job = configuration.job_manifest
    validate(job)
    (container,) = containers(job)
    pod = job["spec"]["template"]["spec"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert job["spec"]["backoffLimit"] == 1
    assert environment["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "relinquish"
    assert environment["SPINEFLOW_LEDGERS"] == "/data/ledgers"
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "spineflow-data"
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}


KILLED = """
import os, signal, time
from prefect import flow, tags

@flow
def killed():
    time.sleep(5)
    os.kill(os.getpid(), signal.SIGKILL)

with tags("spineflow"):
    killed()
"""


@pytest.mark.soak
def test_a_run_whose_process_was_killed_becomes_crashed(tmp_path: Path) -> None:
    """By the automation of the kit with a shorter wait, on a stock server."""
    automation = yaml.safe_load((KIT / "silent-runs.yaml").read_text(encoding="utf-8"))
    automation["trigger"]["within"] = 45
    file = tmp_path / "automation.yaml"
    file.write_text(yaml.safe_dump(automation), encoding="utf-8")
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        "PREFECT_API_URL": address,
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_UI_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    }

    def state() -> dict[str, Any]:
        (run,) = asked(f"{address}/flow_runs/filter", {})
        return run["state"]

    prefect = [sys.executable, "-m", "prefect"]
    start = [*prefect, "server", "start", "--port", str(port)]
    with running(start, environment, tmp_path / "server.log", signal.SIGTERM):
        wait_until(lambda: asked(f"{address}/health"), "the Prefect server")
        create = [*prefect, "automation", "create", "--from-file", str(file)]
        subprocess.run(create, env=environment, check=True, capture_output=True)
        run = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
        assert run.returncode == -signal.SIGKILL
        assert state()["type"] == "RUNNING"
        wait_until(lambda: state()["type"] == "CRASHED", "the automation")
        assert "heartbeat" in state()["message"]
