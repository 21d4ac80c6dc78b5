"""The order of a run's steps, submitted to Prefect or called in this process.

A flow submits the waves of a product's order to its task runner; notebooks, studies and tests call
the same steps as functions, one after the other, and need no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from prefect.futures import PrefectFuture

from ..tasks.ledger.charging import warnings_of
from ..tasks.products.order import INGEST, LEDGER, Aside, Call, Wave, shared
from ..tasks.runs.damage import record_files
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact, found
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.steps import artifact_of, made_before, submit_together
from .logs import LOGGER
from .progress import finish_stage
from .tracking import Tracker

MOST_FOUND_BY_TASKS = 32
"""Files of earlier attempts that the tasks of a wave find themselves, for all to see in the UI."""


def with_warnings(
    run: RunDirectory,
    settings: ProductSettings,
    order: Iterable[Wave],
    notes: Callable[[], Sequence[str]] = tuple,
) -> Iterator[Wave]:
    """The waves of an order as they are, with a word on standard error for each warning about the
    ledger, and for each of `notes`, which are asked for then.

    It is said once the run has been charged, before anything is drawn: what is refused until then
    is told in one sentence. Raises as `warnings_of`.
    """
    is_charged = LEDGER in run.read_manifest()["stages"]
    warnings = [] if is_charged else warnings_of(settings)
    for wave in order:
        yield wave
        if LEDGER not in wave or is_charged:
            continue
        for warning in warnings:
            LOGGER.warning(warning)
        for note in notes():
            LOGGER.info("%s.", note)


def submitted(
    run: RunDirectory,
    order: Iterable[Wave],
    tracker: Tracker | None = None,
    show: Callable[[Wave], None] = lambda wave: None,
) -> Iterator[Wave]:
    """Submit the steps of every wave inside a flow; yields each wave as soon as it has ended.

    An `Aside` is yielded when it has begun. What was made is entered in the manifest, and in the
    record of work that a tracker keeps. Raises the error of the first step of a wave that failed.
    What a wave that has ended has to `show`, and the digests of what no step has handed on, follow
    while workers are at the next; what there is to show from the start is that of an empty wave.

    Where earlier attempts have made more than `MOST_FOUND_BY_TASKS` files of a wave, no tasks are
    started to find them: Prefect takes a tenth of a second for each. Nor does every small call get
    a task of its own; see `shared`.
    """
    futures: dict[Call, PrefectFuture] = {}
    there: dict[Call, Artifact] = {}
    made_by: dict[Call, Artifact] = {}
    calls_of: dict[PrefectFuture, list[Call]] = {}
    stage_of_ended: dict[Call, str] = {}
    to_show: list[Wave] = [{}]

    def catch_up() -> None:
        if any(to_show):
            record_files(run)
        while to_show:
            show(to_show.pop(0))

    def ended(future: PrefectFuture, outcome: object) -> None:
        if isinstance(outcome, BaseException):
            return
        made = outcome if isinstance(outcome, list) else [outcome]
        for one, artifact in zip(calls_of[future], made, strict=True):
            made_by[one] = artifact
            if tracker is not None:
                tracker.ended(one, artifact)

    for wave in order:
        if tracker is not None:
            tracker.begin(wave)
        every = [one for calls in wave.values() for one in calls]
        new = [one for one in every if one not in futures and one not in there]
        found_now = found_here(run, new)
        there |= found_now
        for one, artifact in found_now.items():
            if tracker is not None:
                tracker.ended(one, artifact)
        for some in shared([one for one in new if one not in there]):
            before = dict.fromkeys(chain.from_iterable(one.after for one in some))
            needed = (one for one in before if one not in there and one not in some)
            wait_for = [futures[one] for one in awaited(needed, stage_of_ended)]
            future = _submitted(run, some, list(dict.fromkeys(wait_for)))
            futures |= dict.fromkeys(some, future)
            calls_of[future] = some
        if not isinstance(wave, Aside):
            catch_up()
            finish_stage(
                {s: [futures[one] for one in calls if one in futures] for s, calls in wave.items()},
                ended,
                {stage: sum(one in there for one in calls) for stage, calls in wave.items()},
            )
            made = made_by | there
            enter(run, {stage: [made[one] for one in calls] for stage, calls in wave.items()})
            stage_of_ended |= {one: stage for stage, calls in wave.items() for one in calls}
            to_show.append(wave)
        yield wave
    catch_up()


def _submitted(
    run: RunDirectory, calls: Sequence[Call], wait_for: Sequence[PrefectFuture]
) -> PrefectFuture:
    """Submit calls of one step as one task."""
    first, *others = calls
    if others:
        return submit_together(first.step, str(run.root), [one.keys for one in calls], wait_for)
    return first.step.submit(str(run.root), *first.keys, wait_for=wait_for)


def found_here(run: RunDirectory, calls: Sequence[Call]) -> dict[Call, Artifact]:
    """What earlier attempts have left of some calls; nothing unless it is much.

    What the manifest has the digest of is not read for it again.
    """
    paths: dict[Call, Path] = {}
    for step in dict.fromkeys(one.step for one in calls):
        own = [one for one in calls if one.step is step]
        left = made_before(step, str(run.root), [one.keys for one in own])
        paths |= {one: path for one, path in zip(own, left, strict=True) if path is not None}
    if len(paths) <= MOST_FOUND_BY_TASKS:
        return {}
    stages = run.read_manifest()["stages"].values()
    digests = {path: digest for stage in stages for path, digest in stage["digests"].items()}

    def artifact(path: Path) -> Artifact:
        name = path.relative_to(run.root).as_posix()
        if name not in digests:
            return artifact_of(run, found(path), 0.0)
        return Artifact(name, digests[name], reused=True)

    with ThreadPoolExecutor() as threads:
        return dict(zip(paths, threads.map(artifact, paths.values()), strict=True))


def awaited(after: Iterable[Call], stage_of_ended: Mapping[Call, str]) -> list[Call]:
    """The calls that Prefect is told a call waits for, of all that it waits for.

    Of each stage that has ended one is enough to draw the arrow between the two. A worker looks at
    every one that it is told of, which among hundreds of shards takes longer than their work.
    """
    every = list(after)
    first = {
        stage_of_ended[before]: before for before in reversed(every) if before in stage_of_ended
    }
    return [
        before
        for before in every
        if before not in stage_of_ended or first[stage_of_ended[before]] is before
    ]


def called(
    run: RunDirectory, order: Iterable[Wave], tracker: Tracker | None = None
) -> Iterator[Wave]:
    """Call the steps of every wave as functions, one after the other; yields each wave when it has
    ended, and needs no flow."""
    artifacts: dict[Call, Artifact] = {}
    for wave in order:
        if tracker is not None:
            tracker.begin(wave)
        for one in (one for calls in wave.values() for one in calls if one not in artifacts):
            artifacts[one] = call_here(run, one)
            if tracker is not None:
                tracker.ended(one, artifacts[one])
        if not isinstance(wave, Aside):
            enter(run, {s: [artifacts[one] for one in calls] for s, calls in wave.items()})
            record_files(run)
        yield wave


def run_submitted(run: RunDirectory, order: Iterable[Wave]) -> None:
    """Submit all steps of an order inside a flow, and wait for them; errors as `submitted`."""
    for _ in submitted(run, order):
        pass


def run_in_process(
    run: RunDirectory, order: Iterable[Wave], tracker: Tracker | None = None
) -> None:
    """Call all steps of an order in this process; the run directory has been started."""
    for _ in called(run, order, tracker):
        pass


def call_here(run: RunDirectory, one: Call) -> Artifact:
    """What a step makes when it is called as a function."""
    made = one.step.fn(str(run.root), *one.keys)
    return made if isinstance(made, Artifact) else made.data


def enter(run: RunDirectory, stages: Mapping[str, Sequence[Artifact]]) -> None:
    """Enter finished stages in the manifest, with the digests of an input that was read."""
    run.record_stages(stages)
    for artifact in stages.get(INGEST, ()):
        if artifact.facts:
            run.update_manifest(input_digests=dict(artifact.facts))
