"""What the Prefect tasks of all stages share: options, retries, and how reuse is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed
from spineflow.tasks.runs.confinement import StorageFailed, confined
from spineflow.tasks.runs.handles import Artifact


def _storage_may_recover(_task: Task, _run: Any, state: State) -> bool:
    return isinstance(state.result(raise_on_failure=False), StorageFailed)


def step(
    name: str, *, run_name: str, retried: bool = True
) -> Callable[[Callable[..., Artifact]], Task]:
    """Decorator for the task of a stage; its first argument is the root of the run directory.

    Prefect caches and persists nothing: artifacts in the run directory are the cache, and a step
    that finds its own says so by ending in the state Reused. Steps with `retried` are tried again
    after storage errors, and only after those: an infeasible problem stays infeasible, and noise
    is never drawn twice. Exceptions that are not ours stay in the run's confidential folder.
    """

    def decorate(function: Callable[..., Artifact]) -> Task:
        @functools.wraps(function)
        def run_step(run_root: str, *args: Any, **kwargs: Any) -> Artifact | State:
            artifact = confined(run_root)(function)(run_root, *args, **kwargs)
            if artifact.reused:
                return Completed(name="Reused", message="made by an earlier attempt", data=artifact)
            return artifact

        return task(
            run_step,
            name=name,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=2 if retried else 0,
            retry_delay_seconds=[2, 10] if retried else 0,
            retry_condition_fn=_storage_may_recover if retried else None,
        )

    return decorate
