"""Registering the flows with a Prefect server, and serving them from this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from prefect import serve as serve_deployments
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL
from spineflow.flows.registry import product
from spineflow.tasks.runs.errors import InputRefused, SpineflowError

DEPLOYMENT = "settings-file"
"""Name of the deployment of every flow: it runs a settings file."""


def serve(names: Sequence[str]) -> None:
    """Register flows and run them in this process's children until it is stopped."""
    _refuse_without_server()
    serve_deployments(*[_deployment(name) for name in names], print_starting_message=True)


def deploy(names: Sequence[str], work_pool: str) -> list[str]:
    """Register flows for a work pool, which is made, of type process, if it is missing.

    Returns the names of the deployments. A worker of the pool needs this package in its
    environment, and the folders of settings, input, ledger and runs at the same paths.
    """
    _refuse_without_server()
    try:
        _make_pool(work_pool)
        for name in names:
            _deployment(name, work_pool).apply()
    except (OSError, RuntimeError) as error:
        raise SpineflowError(
            f"The Prefect server at {PREFECT_API_URL.value()} did not answer "
            f"({type(error).__name__}); start it, or set PREFECT_API_URL."
        ) from None
    return [f"{name}/{DEPLOYMENT}" for name in names]


def _deployment(name: str, work_pool: str | None = None) -> RunnerDeployment:
    flow = product(name).flow
    made = flow.to_deployment(
        DEPLOYMENT,
        description=flow.description,
        tags=["spineflow"],
        work_pool_name=work_pool,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # Prefect answers with a coroutine only where an event loop runs.
    return cast(RunnerDeployment, made)


def _make_pool(name: str) -> None:
    """Make a work pool of type process unless there is a pool of that name, of whatever type."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def _refuse_without_server() -> None:
    """Deployments on the embedded server would vanish with it."""
    if PREFECT_API_URL.value() is None:
        raise InputRefused(
            "There is no Prefect server to register with; start one with 'prefect server start' "
            "and set PREFECT_API_URL, for example to http://127.0.0.1:4200/api."
        )
