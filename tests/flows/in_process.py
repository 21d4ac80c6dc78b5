"""Commands without a Prefect server: the same steps in the same order, called as functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import Task
from prefect.context import FlowRunContext, SettingsContext, get_settings_context
from prefect.exceptions import UnfinishedRun
from prefect.futures import PrefectConcurrentFuture, PrefectFuture
from prefect.settings import PREFECT_API_URL, Settings
from prefect.states import Failed, Pending
from prefect.task_runners import TaskRunner
from spineflow.flows import results, running, servers
from spineflow.flows.registry import flow_of
from spineflow.flows.stages import Stopped
from spineflow.tasks.products.product import Product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.validation.outcome import Outcome
from spineflow.validation.rules import Rule, Value

ServerForRuns = Callable[[], AbstractContextManager[servers.Server]]

JUDGED_IN = ("spineflow.tasks.tables.value_tallies",)
"""Modules that ask Great Expectations for a second opinion on an input."""


def start_no_server(patched: pytest.MonkeyPatch) -> None:
    """Have commands that are called as functions use the server that is set, or none."""
    patched.setattr(servers, "server_for_runs", lambda: nullcontext(servers.Server("")))
    patched.setattr(running, "server_for_runs", partial(seen_by_threads, running.server_for_runs))


@contextmanager
def seen_by_threads(server_for_runs: ServerForRuns) -> Iterator[servers.Server]:
    """The server for runs, if one is set here, set for threads without settings as well.

    Prefect has one that forwards what worker processes say, which would start a server of its own.
    """
    with pytest.MonkeyPatch.context() as patched, server_for_runs() as server:
        if PREFECT_API_URL.value() is not None:
            patched.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", get_settings_context())
        yield server


def second_opinion(
    rules: Sequence[Rule], _values: Mapping[str, Mapping[str, Collection[Value]]]
) -> tuple[Outcome, ...]:
    """Stand-in for Great Expectations that finds nothing, so that our own code alone decides."""
    return tuple(Outcome(rule.name, rule.suite, True, rule.statement) for rule in rules)


@contextmanager
def judged_once() -> Iterator[None]:
    """Have our own code alone judge inputs in the block, which are sound: Great Expectations takes
    a tenth of a small run."""
    with pytest.MonkeyPatch.context() as patched:
        for module in JUDGED_IN:
            patched.setattr(f"{module}.run_suites", second_opinion)
        yield


def stop_after(name: str) -> Callable[[str], None]:
    """What `call_stages` calls with every stage that has ended, to stop after one."""

    def ended(stage: str) -> None:
        if stage == name:
            raise Stopped

    return ended


@contextmanager
def uncompared() -> Iterator[None]:
    """Compare no release of topdown with the truth in the block, as if that were gone: where
    nothing is asked of the comparison, which takes a fifth of a small run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "spineflow.tasks.topdown.checks.accuracy.steps.write_run_accuracy", lambda *_: None
        )
        yield


_FOR_GOOD = ExitStack()
"""What a process does for as long as it lives."""


def judge_once_for_good() -> None:
    """`judged_once` for the rest of a process, as a worker of a cluster is."""
    _FOR_GOOD.enter_context(judged_once())


_WITHOUT_SERVER: dict[int, tuple[Settings, Settings]] = {}
"""Settings of Prefect by their identity, and what they are without the address of a server."""


def without_server() -> SettingsContext:
    """The settings of Prefect that hold now, but for the address of a server.

    They are copied once, which takes as long as a stage: `temporary_settings` copies them anew.
    """
    context = get_settings_context()
    key = id(context.settings)
    if key not in _WITHOUT_SERVER:
        bare = context.settings.copy_with_update(restore_defaults={PREFECT_API_URL})
        _WITHOUT_SERVER[key] = (context.settings, bare)
    return SettingsContext(profile=context.profile, settings=_WITHOUT_SERVER[key][1])


@contextmanager
def stages_in_process(*, judged_twice: bool = True) -> Iterator[None]:
    """Have commands run the stages of a product in this process, without a flow run.

    The server of the session, if other tests have set one, is not theirs. Great Expectations may be
    left out where the input is sound.
    """
    with (
        without_server(),
        pytest.MonkeyPatch.context() as patched,
        nullcontext() if judged_twice else judged_once(),
    ):
        start_no_server(patched)
        patched.setattr(running, "run_stages", running.run_stages_in_process)
        yield


@dataclass
class Shown:
    """What flows have shown on their pages, by key, and the tasks that they have submitted."""

    texts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)
    submitted: list[tuple[Any, ...]] = field(default_factory=list)


def has_failed(future: PrefectFuture[Any]) -> bool:
    """Whether a task raised something, or has not been begun because another did."""
    try:
        return isinstance(future.result(raise_on_failure=False), BaseException)
    except UnfinishedRun:
        return True


def run_flow_here(product: Product, run: RunDirectory, settings: ProductSettings) -> str:
    """Run the stages of any product as the function that its flow calls."""
    # Of a flow that calls another, only Prefect would know.
    outer = FlowRunContext.__var__.set(None)
    try:
        with running.override_runner(run, settings):
            return flow_of(product.name).fn(run_directory=str(run.root))
    finally:
        FlowRunContext.__var__.reset(outer)


@contextmanager
def tasks_in_threads() -> Iterator[Shown]:
    """Have the flows of products called as functions in this process, their tasks in threads.

    All is as a flow does it but for Prefect: no server hears of tasks, and what is shown is kept.
    """
    shown = Shown()
    with (
        without_server(),
        pytest.MonkeyPatch.context() as patched,
        judged_once(),
        ThreadPoolExecutor(2) as pool,
    ):

        class Threads(TaskRunner[Any]):
            """Runs tasks in threads, of which no server hears."""

            def duplicate(self) -> Any:
                raise NotImplementedError

            def submit(
                self, task: Task, parameters: dict[str, Any], wait_for: Any = (), _: Any = None
            ) -> Any:
                arguments = [*parameters.values()]
                shown.submitted.append((task.name, *arguments[1:]))

                def perform() -> Any:
                    if any(has_failed(one) for one in wait_for):
                        return Pending(name="NotReady")
                    try:
                        return task.fn(*arguments)
                    except Exception as error:
                        return Failed(data=error)

                return PrefectConcurrentFuture(uuid4(), pool.submit(perform))

        def keep_text(text: str, *, key: str, description: str) -> UUID:
            shown.texts[key] = text
            return uuid4()

        def keep_table(table: list[dict[str, Any]], *, key: str, description: str) -> UUID:
            shown.tables[key] = table
            return uuid4()

        start_no_server(patched)
        patched.setattr(running, "task_runner", lambda _: Threads())
        patched.setattr(results, "create_markdown_artifact", keep_text)
        patched.setattr(results, "create_table_artifact", keep_table)

        def keep_progress(percent: float, *, key: str, description: str) -> str:
            shown.progress[description] = percent
            return description

        def update_progress(stage: str, percent: float) -> None:
            shown.progress[stage] = percent

        patched.setattr(results, "is_embedded", lambda: False)
        patched.setattr(results, "address_of", str)
        patched.setattr(results, "create_progress_artifact", keep_progress)
        patched.setattr(results, "update_progress_artifact", update_progress)
        patched.setattr(results, "get_run_logger", partial(logging.getLogger, "spineflow.tests"))
        for module in ("products", "running"):  # The first imports from the second.
            patched.setattr(f"spineflow.flows.{module}.run_stages", run_flow_here)
        yield shown
