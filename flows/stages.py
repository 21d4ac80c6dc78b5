"""The stages of a run: the tasks that its flow submits, and the records of their results.

A flow opens a `stage`, submits its tasks by Prefect's `task.submit(root, ..., wait_for=...)`,
and goes on; it calls `finish` where files of the run decide the next step. `Stages`, the flow's
task runner, passes tasks on to the runner of the settings. In notebooks, studies and tests, which
need no server, it calls them in this process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from prefect import Task, tags
from prefect.context import FlowRunContext
from prefect.exceptions import UnfinishedRun
from prefect.task_runners import TaskRunner

from ..tasks.products.steps import charge_ledger, check_release, release_run, report_run
from ..tasks.runs.damage import record_files
from ..tasks.runs.directory import INGEST, LEDGER, RunDirectory, record_task
from ..tasks.runs.errors import SpineflowError
from ..tasks.runs.handles import Artifact, reused
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.steps import artifact_of, made_before
from .endings import refuse_if_cancelled
from .results import StageProgress
from .servers import is_embedded

MOST_FOUND_BY_TASKS = 32
"""Most tasks submitted in a stage although their files exist, so that the UI shows them; the flow
itself finds further files. Prefect takes a tenth of a second per task."""

SECONDS_BETWEEN_LOOKS = 1.0
"""Interval at which a waiting flow checks whether its run was cancelled."""

Future = Any
"""A future of Prefect's, or a `Local` one."""

Body = Callable[[RunDirectory, Any], None]
"""The function of a flow that submits its stages, given the run and its settings."""


class Stopped(Exception):
    """A run in this process has reached the requested stage."""


@dataclass(eq=False)
class Local:
    """The future of an artifact that is made, or found, in this process on request."""

    make: Callable[[], Artifact]
    made: Artifact | None = None

    def result(self, raise_on_failure: bool = True) -> Artifact:
        """The artifact; raises the error of its task."""
        if self.made is None:
            self.made = self.make()
        return self.made


@dataclass(eq=False)
class Stage:
    """Tasks of a run that are shown, entered in the manifest and recorded under one name.

    is_background : nothing waits for it unless its futures are named.
    n_found : tasks with nothing left to do.
    n_ended, has_failed : tasks that have ended, and whether one of them has raised an error.
    before : dependencies of its first task.
    began : time when these, or one of its tasks, had ended and its progress was first reported.
    """

    name: str
    is_background: bool
    futures: list[Future] = field(default_factory=list)
    n_found: int = 0
    n_ended: int = 0
    has_failed: bool = False
    is_entered: bool = False
    before: tuple[Future, ...] = ()
    began: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether all its tasks have ended, and all succeeded."""
        return self.n_ended == len(self.futures) > 0 and not self.has_failed


class Stages(TaskRunner[Any]):
    """The stages of a run, as a task runner that wraps the runner of its settings.

    runner : the task runner of the settings, started; None calls tasks in this process.
    ended : called with the name of every stage that has ended and is in the manifest.
    before : in this process, a pattern of names of stages before which to stop.
    """

    def __init__(
        self,
        run: RunDirectory,
        settings: ProductSettings,
        runner: TaskRunner[Any] | None,
        *,
        ended: Callable[[str], None] = lambda stage: None,
        before: str = "",
    ) -> None:
        super().__init__()
        self._run, self._settings, self._runner = run, settings, runner
        self._ended, self._before = ended, before
        self._stages: dict[str, Stage] = {}
        self._stage_of: dict[Future, Stage] = {}
        self._call_of: dict[Future, tuple[str, list[Any]]] = {}
        self._kind_of: dict[Future, str] = {}
        self._after: dict[str, list[str]] = {}
        self._earlier: dict[str, set[str]] = {}
        self._passed: set[str] = set()
        self._outcomes: dict[Future, Any] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._open: Stage | None = None
        self._is_recorded = True
        self._progress = None if runner is None else StageProgress()
        stages = run.read_manifest()["stages"].values()
        self._digests = {path: own for stage in stages for path, own in stage["digests"].items()}
        self._started = True

    def duplicate(self) -> Stages:
        """Raises NotImplementedError: a run has a single `Stages`."""
        raise NotImplementedError

    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        wait_for: Iterable[Future] | None = None,
        dependencies: Any = None,
    ) -> Future:
        """Submit a task as part of the stage that is open; returns its future."""
        stage, before = self._open, list(dict.fromkeys(wait_for or ()))
        if stage is None:
            raise RuntimeError(f"{task.name} is submitted outside of any stage")
        future = self._future_of(stage, task, parameters, before)
        self._stage_of[future] = stage
        if not stage.futures:
            stage.before = tuple(before)
        stage.futures.append(future)
        _, *keys = parameters.values()  # The first parameter is the folder of the run.
        self._call_of[future] = task.name, keys
        self._kind_of[future] = kind = f"{stage.name}: {task.name}"
        if kind not in self._after:
            after = (self._passed | {self._kind_of[own] for own in before}) - {kind}
            known = set[str]().union(*(self._earlier[own] for own in after))
            self._after[kind], self._earlier[kind] = sorted(after - known), after | known
        return future

    def _future_of(
        self, stage: Stage, task: Task[..., Any], parameters: dict[str, Any], before: list[Future]
    ) -> Future:
        if self._runner is None:
            return Local(partial(self._call, task, parameters, before))
        _, *keys = parameters.values()
        path = made_before(task, self._run, self._settings, keys)
        if path is not None:
            stage.n_found += 1
            if stage.n_found > MOST_FOUND_BY_TASKS:
                return Local(partial(self._find, path))
        future = self._runner.submit(task, parameters, self._dependencies_to_report(before))
        future.add_done_callback(self._done.put)
        return future

    def _call(
        self, task: Task[..., Any], parameters: dict[str, Any], before: list[Future]
    ) -> Artifact:
        for future in before:
            self._collect(future)
        made = task.fn(*parameters.values())
        artifact: Artifact = made if isinstance(made, Artifact) else made.data
        return artifact

    def _find(self, path: Path) -> Artifact:
        """The artifact of an earlier attempt; it is read again unless its digest is known."""
        name = path.relative_to(self._run.root).as_posix()
        if name in self._digests:
            return Artifact(name, self._digests[name], reused=True)
        return artifact_of(self._run, reused(path), 0.0)

    def _dependencies_to_report(self, before: Iterable[Future]) -> list[Future]:
        """Dependencies to report to Prefect: of a finished stage one suffices for the arrow in the
        UI. A worker checks each, which for hundreds of shards takes longer than their work.
        """
        reported: set[Stage] = set()
        dependencies = []
        for future in before:
            stage = self._stage_of[future]
            if isinstance(future, Local) or stage in reported:
                continue
            if stage.is_entered:
                reported.add(stage)
            dependencies.append(future)
        return dependencies

    @contextmanager
    def opened(self, kind: str, name: str, *, is_background: bool) -> Iterator[None]:
        """Open a stage, or an existing background stage again, for the tasks of the block, which
        are tagged by the product and the kind of the stage."""
        if self._before and re.search(self._before, name):
            self.finish()
            raise Stopped
        stage = self._stages.setdefault(name, Stage(name, is_background))
        stage.is_background, stage.is_entered = is_background, False
        self._open = stage
        # A command's own server has no limits by tag; without tags Prefect sends no query for them.
        is_tagged = self._runner is not None and not is_embedded()
        try:
            with tags(self._settings.PRODUCT, kind) if is_tagged else nullcontext():
                yield
        finally:
            self._open = None
        self._update(stage)

    def finish(self, futures: Iterable[Future] | None = None, *, everything: bool = False) -> None:
        """Wait until tasks have ended; see the function `finish`."""
        if futures is None:
            stages = [one for one in self._stages.values() if everything or not one.is_background]
            futures = [future for stage in stages for future in stage.futures]
        chosen = list(dict.fromkeys(futures))
        for stage in dict.fromkeys(self._stage_of[future] for future in chosen):
            if stage.is_background:
                stage.is_background = False
                self._update(stage)
        self._record_files()
        with self._naming_stages():
            for future in chosen:
                if isinstance(future, Local):
                    self._collect(future)
            missing = {future for future in chosen if future not in self._outcomes}
            while missing:
                future = self._next()
                self._collect(future)
                missing.discard(future)
        self._passed |= {self._kind_of[future] for future in chosen}
        outcomes = [self._outcomes[future] for future in chosen]
        errors = [one for one in outcomes if isinstance(one, BaseException)]
        if errors:
            raise next((one for one in errors if isinstance(one, SpineflowError)), errors[0])

    def _next(self) -> Future:
        """Wait for the next ended task; raises RunCancelled soon after the run is cancelled."""
        while True:
            refuse_if_cancelled()
            try:
                return self._done.get(timeout=SECONDS_BETWEEN_LOOKS)
            except Empty:
                continue

    def _collect(self, future: Future) -> None:
        """Store the result or error of an ended task, and update the stages."""
        if future in self._outcomes:
            return
        stage = self._stage_of[future]
        try:
            outcome = future.result(raise_on_failure=False)
        except UnfinishedRun as error:  # A task that was never started.
            outcome = error
        self._outcomes[future] = outcome
        stage.n_ended += 1
        if isinstance(outcome, Artifact):
            after = self._after[self._kind_of[future]]
            record_task(self._run, stage.name, *self._call_of[future], outcome, after)
        else:
            stage.has_failed = True
        for waiting in [one for one in self._stages.values() if one.began is None]:
            self._update(waiting)
        self._update(stage)

    def _update(self, stage: Stage) -> None:
        """Show the progress of a stage that has begun, and enter an ended one in the manifest."""
        if stage.is_background or stage is self._open or stage.is_entered or not stage.futures:
            return
        if stage.began is None:
            if not stage.n_ended and any(one not in self._outcomes for one in stage.before):
                return
            stage.began = time.monotonic()
        if self._progress is not None:
            seconds = time.monotonic() - stage.began
            self._progress.update(
                stage.name, stage.n_ended, len(stage.futures), seconds, stage.has_failed
            )
        if not stage.has_ended:
            return
        stage.is_entered = True
        self._enter(stage.name, [self._outcomes[future] for future in stage.futures])

    def _enter(self, stage: str, artifacts: Sequence[Artifact]) -> None:
        """Enter an ended stage in the manifest, and after ingest the digests of the input."""
        self._run.record_stages({stage: artifacts}, order=list(self._stages))
        digests = [artifact.input_digests for artifact in artifacts if artifact.input_digests]
        if stage == INGEST and digests:
            self._run.update_manifest(input_digests=digests[-1])
        self._is_recorded = False
        self._ended(stage)

    def _record_files(self) -> None:
        """Record the files of stages that have ended, while workers run the tasks of others."""
        if not self._is_recorded:
            record_files(self._run)
        self._is_recorded = True

    @contextmanager
    def _naming_stages(self) -> Iterator[None]:
        """In the block, add a note with the stages in progress to an unforeseen error."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, SpineflowError | Stopped):
                under_way = [
                    f"the stage '{stage.name}'"
                    for stage in self._stages.values()
                    if stage.began is not None and not stage.is_entered
                ]
                error.add_note(" and ".join(under_way))
            raise

    def run(self, body: Body) -> None:
        """Call a flow's function, whose tasks are submitted here, and wait until all have ended or
        the requested stage is reached."""
        # `task.submit` uses the task runner of the current context.
        context = FlowRunContext.get() or FlowRunContext.model_construct()
        with suppress(Stopped), context.model_copy(update={"task_runner": self}):
            body(self._run, self._settings)
            self.finish(everything=True)
        self._record_files()


def stages_here() -> Stages:
    """The stages of the calling flow."""
    context = FlowRunContext.get()
    stages = None if context is None else context.task_runner
    if not isinstance(stages, Stages):
        raise RuntimeError("stages are opened by the flow of a product")
    return stages


def stage(kind: str, name: str = "", *, background: bool = False) -> AbstractContextManager[object]:
    """Submit the tasks of a stage in the block.

    Args:
        kind: A tag of its tasks in addition to the product's name, for limits by tag, such as
            `measure`.
        name: The name shown to users and entered in the manifest; `kind` by default.
        background: Whether `finish` ignores it unless its futures are named.
    """
    return stages_here().opened(kind, name or kind, is_background=background)


def finish(futures: Iterable[Future] | None = None) -> None:
    """Wait until tasks have ended, by default the tasks of all stages but background ones.

    Raises the error of the first failed task in the order of submission, a `SpineflowError` before
    any other. Tasks that depend on a failed task are not started.
    """
    stages_here().finish(futures)


def charge(root: str, wait_for: Iterable[Future] = ()) -> Future:
    """Charge a run before anything is drawn, and wait for the charge."""
    before = list(wait_for)
    with stage(LEDGER):
        charged = charge_ledger.submit(root, wait_for=before)
    finish([*before, charged])
    return charged


def release(root: str, wait_for: Iterable[Future]) -> None:
    """Check the results, release them, and report on the run."""
    with stage("checks"):
        checked = check_release.submit(root, wait_for=wait_for)
    with stage("release"):
        released = release_run.submit(root, wait_for=[checked])
    finish()  # The report has the seconds of all stages before it.
    with stage("report"):
        report_run.submit(root, wait_for=[released])
