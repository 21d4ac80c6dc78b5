"""Registering the flows with a Prefect server, and serving them from this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import serve as serve_deployments
from prefect.client.orchestration import PrefectClient, SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL

from ..tasks.runs.errors import InputRefused, SpineflowError
from .registry import MODULES, TITLES, entry_point, flow_of
from .servers import too_busy

TAG = "spineflow"
"""Tag of every deployment of Spineflow, in addition to users' tags."""


class UpdatedDeployment(RunnerDeployment):
    """A deployment that, registered again, changes only the fields set by the code.

    Prefect's own resets schedules, concurrency limits, tags and parameters set at the server to
    the code's values, which are empty.
    """

    # Prefect 3.9 also has an option to keep schedules, as is always done here.
    def _update_sync(
        self, deployment_id: UUID, client: SyncPrefectClient, version_info: Any, **_: Any
    ) -> UUID:
        found = client.read_deployment(deployment_id)
        client.update_deployment(deployment_id, self._changes(found))
        return deployment_id

    async def _update(
        self, deployment_id: UUID, client: PrefectClient, version_info: Any, **_: Any
    ) -> UUID:
        found = await client.read_deployment(deployment_id)
        await client.update_deployment(deployment_id, self._changes(found))
        return deployment_id

    def _changes(self, found: DeploymentResponse) -> DeploymentUpdate:
        """Changes from the code: the flow's place, its description, and the fields of its form."""
        changes: dict[str, Any] = {
            "description": self.description,
            "entrypoint": self.entrypoint,
            "version": self.version,
            "parameter_openapi_schema": self._parameter_openapi_schema.model_dump(
                exclude_unset=True
            ),
            "tags": sorted({*found.tags, TAG}),
        }
        # Naming the pool again would move the deployment to the pool's default queue.
        if self.work_pool_name not in (None, found.work_pool_name):
            changes["work_pool_name"] = self.work_pool_name
        return DeploymentUpdate(**changes)


def serve(names: Sequence[str]) -> None:
    """Register flows, by default all, and run them in children of this process until it ends."""
    with _require_server():
        registered = _deployments(names)
    serve_deployments(*registered, print_starting_message=True)


def deploy(names: Sequence[str], work_pool: str) -> list[str]:
    """Register flows, by default all, for a work pool, made of type process if it is missing.

    Returns the names of the deployments. A worker of the pool needs this package in its
    environment, and the folders of settings, input, ledger and runs at the same paths.
    """
    with _require_server():
        _make_pool(work_pool)
        registered = _deployments(names, work_pool)
        for deployment in registered:
            deployment.apply()
    return [deployment.full_name for deployment in registered]


@contextmanager
def _require_server() -> Iterator[None]:
    """In the block, report a server that does not answer, with the setting of its address.

    Deployments on the embedded server would vanish with it.
    """
    if PREFECT_API_URL.value() is None:
        raise InputRefused(
            "There is no Prefect server to register with; start one with 'prefect server start' "
            "and set PREFECT_API_URL, for example to http://127.0.0.1:4200/api."
        )
    try:
        with get_client(sync_client=True) as client:
            client.hello()
        yield
    except (OSError, RuntimeError, httpx.HTTPError) as error:
        if (busy := too_busy(error)) is not None:
            raise SpineflowError(f"{busy}, and run the command again.") from None
        server = f"The Prefect server at {PREFECT_API_URL.value()}"
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 401:
            raise SpineflowError(
                f"{server} asks for a password; set PREFECT_API_AUTH_STRING to that of the server."
            ) from None
        raise SpineflowError(
            f"{server} did not answer "
            f"({type(error).__name__}); start it, or set PREFECT_API_URL to the one that runs."
        ) from None


def _deployments(names: Sequence[str], work_pool: str | None = None) -> list[UpdatedDeployment]:
    return [_deployment(name, work_pool) for name in names or MODULES]


def _deployment(name: str, work_pool: str | None) -> UpdatedDeployment:
    flow = flow_of(name)
    made = UpdatedDeployment.from_flow(
        flow,
        TITLES[name],
        description=flow.description,
        tags=[TAG],
        work_pool_name=work_pool,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    assert isinstance(made, UpdatedDeployment)
    made.entrypoint = entry_point(name)
    return made


def _make_pool(name: str) -> None:
    """Make a work pool of type process unless a pool of that name exists, of any type."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=name, type="process"))
