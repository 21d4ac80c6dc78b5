"""The order of a run's steps, submitted to Prefect or called in this process.

A flow submits the waves of a product's order to its task runner; notebooks, studies and tests call
the same steps as functions, one after the other, and need no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prefect.futures import PrefectFuture

from ..tasks.ledger.charging import warnings_of
from ..tasks.products.order import INGEST, LEDGER, Aside, Call, Wave
from ..tasks.runs.damage import record_files
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact, found
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.steps import artifact_of, made_before
from .log_lines import say
from .progress import finish_stage, unknown
from .tracking import Described, Tracker, name_of

MOST_FOUND_BY_TASKS = 32
"""Files of earlier attempts that the tasks of a wave find themselves, for all to see in the UI."""


def announced(
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
            say(f"warning: {warning}")
        for note in notes():
            say(f"note: {note}.")


def submitted(
    run: RunDirectory, order: Iterable[Wave], tracker: Tracker | None = None
) -> Iterator[Wave]:
    """Submit the steps of every wave inside a flow; yields each wave as soon as it has ended.

    An `Aside` is yielded when it has begun. What was made is entered in the manifest, and in the
    record of work that a tracker keeps. Raises the error of the first step of a wave that failed.

    Where earlier attempts have made more than `MOST_FOUND_BY_TASKS` files of a wave, no tasks are
    started to find them: Prefect takes a tenth of a second for each. Where they have measured that
    many, the ledger is asked in this process, which has begun to hash them.
    """
    futures: dict[Call, PrefectFuture] = {}
    there: dict[Call, Artifact] = {}
    names: dict[PrefectFuture, str] = {}
    stage_of_ended: dict[Call, str] = {}

    def ended(future: PrefectFuture, outcome: object) -> None:
        if tracker is not None and isinstance(outcome, Artifact):
            tracker.ended(names[future], outcome)

    for wave in order:
        if tracker is not None:
            tracker.begin(described(wave), aside=isinstance(wave, Aside))
        every = [one for calls in wave.values() for one in calls]
        new = [one for one in every if one not in futures and one not in there]
        found_now = found_here(run, new)
        if LEDGER in wave and has_measured_much(run):
            found_now |= {one: call_here(run, one) for one in new if one in wave[LEDGER]}
        there |= found_now
        for one, artifact in found_now.items():
            if tracker is not None:
                tracker.ended(name_of(one.step.name, one.keys), artifact)
        for one in (one for one in new if one not in there):
            needed = (before for before in one.after if before not in there)
            wait_for = [futures[before] for before in awaited(needed, stage_of_ended)]
            futures[one] = one.step.submit(str(run.root), *one.keys, wait_for=wait_for)
            names[futures[one]] = name_of(one.step.name, one.keys)
        if not isinstance(wave, Aside):
            finish_stage(
                {s: [futures[one] for one in calls if one in futures] for s, calls in wave.items()},
                ended,
                tracker.left if tracker is not None else unknown,
                {stage: sum(one in there for one in calls) for stage, calls in wave.items()},
            )
            made = {one: there[one] if one in there else futures[one].result() for one in every}
            record(run, {stage: [made[one] for one in calls] for stage, calls in wave.items()})
            stage_of_ended |= {one: stage for stage, calls in wave.items() for one in calls}
        yield wave


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


def has_measured_much(run: RunDirectory) -> bool:
    """Whether a run that was charged goes on with so many files of noisy measurements that no tasks
    are started to find them."""
    if LEDGER not in run.read_manifest()["stages"] or run.release.exists():
        return False
    return sum(1 for _ in (run.root / "measurements").rglob("*.parquet")) > MOST_FOUND_BY_TASKS


def awaited(after: Iterable[Call], stage_of_ended: Mapping[Call, str]) -> list[Call]:
    """Those that Prefect is told a call waits for, of the calls that it waits for.

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
            tracker.begin(described(wave), aside=isinstance(wave, Aside))
        for one in (one for calls in wave.values() for one in calls if one not in artifacts):
            artifacts[one] = call_here(run, one)
            if tracker is not None:
                tracker.ended(name_of(one.step.name, one.keys), artifacts[one])
        if not isinstance(wave, Aside):
            record(run, {s: [artifacts[one] for one in calls] for s, calls in wave.items()})
        yield wave


def described(wave: Wave) -> Described:
    """The names of what a wave calls, and of what those calls wait for besides earlier waves."""
    here = {one for calls in wave.values() for one in calls}
    return {
        stage: [
            (
                one.step.name,
                one.keys,
                [name_of(before.step.name, before.keys) for before in one.after if before in here],
            )
            for one in calls
        ]
        for stage, calls in wave.items()
    }


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


def finish(run: RunDirectory, stages: Mapping[str, Sequence[PrefectFuture]]) -> None:
    """Wait for stages and enter them in the manifest; errors as `finish_stage`."""
    finish_stage(stages)
    record(run, {stage: [future.result() for future in made] for stage, made in stages.items()})


def record(run: RunDirectory, stages: Mapping[str, Sequence[Artifact]]) -> None:
    """Enter finished stages in the manifest, with the digests of an input that was read."""
    run.record_stages(stages)
    record_files(run)
    for artifact in stages.get(INGEST, ()):
        if artifact.facts:
            run.update_manifest(input_digests=dict(artifact.facts))
