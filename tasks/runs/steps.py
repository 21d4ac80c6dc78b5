"""Common parts of the Prefect tasks of all stages: frame, options, retries, display of reuse.

Prefect logs every exception of a task and of a flow with its traceback, which says nothing to the
person who reads on the run's page that a column is missing: the program's own errors have none.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from .directory import RunDirectory, refuse_altered
from .errors import SpineflowError, StorageFailed, confined_error
from .files import digest_of
from .handles import Artifact, Made, reused, stopwatch
from .settings import ProductSettings
from .settings_files import settings_of_run
from .stores import StoreSilent

LOGGERS = ("prefect.task_runs", "prefect.flow_runs", "prefect.engine")
"""The loggers with which Prefect reports exceptions of runs."""


def shorten_error(record: logging.LogRecord) -> bool:
    """Filter of log records that leaves out the traceback of the program's own errors."""
    # With a plain `exc_info=True` logging has put the exception in handling here already.
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if isinstance(error, SpineflowError):
        record.exc_info = record.exc_text = None
    return True


for _name in LOGGERS:
    logging.getLogger(_name).addFilter(shorten_error)

RETRY_SECONDS = (2.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""Waits before a step is tried again: five minutes in all, which outlasts most troubles of stores.

Files of this machine are tried again after the first `OF_A_DISK` alone: a full disk stays full.
"""

OF_A_DISK = 2

Model = type[ProductSettings] | Callable[[RunDirectory], type[ProductSettings]]
"""The model of a run's settings, or a function of the run that returns it."""

_MADE_AT = "made_at"
"""Attribute of a task's function: the path of the file that it makes, of the same arguments."""


def load_run(run_root: str | Path, model: Model) -> tuple[RunDirectory, ProductSettings]:
    """The run at `run_root` and the settings it has frozen.

    Every step reads its run through here. Raises InputRefused if the settings cannot be read or
    have been edited since the run began, or if a file that decides the draws differs from the
    charged one.
    """
    run = RunDirectory(Path(run_root))
    if run.manifest.exists():
        run.refuse_edited_settings()
        refuse_altered(run)
    own = model if isinstance(model, type) else model(run)
    return run, settings_of_run(own, run)


def artifact_of(run: RunDirectory, made: Made, seconds: float) -> Artifact:
    """The handle of an artifact that a step made or reused in `seconds`.

    Only public files get a digest; folders and confidential files have a path alone.
    """
    path, digest = made.path, ""
    if isinstance(path, Path):
        if path.is_file() and not path.is_relative_to(run.confidential):
            digest = digest_of(path)
        path = str(path.relative_to(run.root))
    return Artifact(path, digest, seconds, made.reused, made.input_digests)


def _storage_may_recover(_task: Task, run: TaskRun, state: State) -> bool:
    error = state.result(raise_on_failure=False)
    if isinstance(error, StoreSilent):
        return True
    return isinstance(error, StorageFailed) and run.run_count <= OF_A_DISK


def step(
    name: str,
    model: Model,
    *,
    run_name: str,
    retried: bool = True,
    made_at: Callable[..., Path] | None = None,
) -> Callable[[Callable[..., Made]], Task]:
    """Decorator that makes the task of a stage from the part that is the stage's own.

    That part is a function `(run, settings, *keys)` of the run directory, its frozen settings, read
    by `model`, and the keys of one piece of work (universe, level, shard). It returns what it
    has `made`, or `found` from an earlier attempt. If the file `made_at` of the same arguments
    exists, the function is not called. The task is called with the root of the run directory and
    the keys, and returns an Artifact.

    Prefect caches and persists nothing: artifacts in the run directory are the cache, and a step
    that finds its own says so by ending in the state Reused. Steps with `retried` are tried again
    after storage errors (`RETRY_SECONDS`), and only after those: an infeasible problem stays
    infeasible, and noise is never drawn twice. Exceptions that are not ours stay in the run's
    confidential folder.
    """

    def decorate(function: Callable[..., Made]) -> Task:
        def perform(run_root: str, *keys: Any) -> Artifact:
            started, cpu = round(time.time(), 3), time.thread_time()
            with stopwatch() as seconds:
                arguments = (*load_run(run_root, model), *keys)
                path = None if made_at is None else made_at(*arguments)
                is_made = path is not None and path.exists()
                made = reused(path or "") if is_made else function(*arguments)
                artifact = artifact_of(arguments[0], made, seconds())
            cpu = round(time.thread_time() - cpu, 3)
            worker = f"{socket.gethostname()}:{os.getpid()}"
            return replace(artifact, started=started, cpu=cpu, worker=worker)

        @functools.wraps(function)
        def run_step(run_root: str, *keys: Any) -> Artifact | State:
            try:
                artifact, public = perform(run_root, *keys), None
            except Exception as error:
                public = confined_error(error, run_root, function.__name__, keys)
            if public is not None:
                raise public from None
            if artifact.reused:
                return Completed(name="Reused", message="made by an earlier attempt", data=artifact)
            return artifact

        run_step.__dict__[_MADE_AT] = made_at
        run_step.__dict__["__signature__"] = _signature(function)
        return task(
            name=name,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=len(RETRY_SECONDS) if retried else 0,
            retry_delay_seconds=list(RETRY_SECONDS) if retried else 0,
            retry_condition_fn=_storage_may_recover if retried else None,
        )(run_step)

    return decorate


def made_before(
    step: Task[..., Any], run: RunDirectory, settings: ProductSettings, keys: Sequence[Any]
) -> Path | None:
    """The file that an earlier attempt at a call of a step has made; None without such a file, or
    for a step without `made_at`."""
    made_at = step.fn.__dict__.get(_MADE_AT)
    path = None if made_at is None else made_at(run, settings, *keys)
    return path if path is not None and path.exists() else None


def _signature(function: Callable[..., Made]) -> inspect.Signature:
    """Signature of the task: the root of the run instead of the function's first two, the keys.

    Prefect names a task run after the arguments that it finds here.
    """
    keys = list(inspect.signature(function).parameters.values())[2:]
    root = inspect.Parameter("run_root", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
    return inspect.Signature([root, *keys], return_annotation=Artifact)
