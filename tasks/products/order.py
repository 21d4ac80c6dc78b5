"""The order of a run's steps, written once for flows, notebooks and tests.

The order of a product is a generator of waves. A wave says by stage which steps are called, and
which calls each of them waits for; it has ended before the generator goes on, so what a step wrote
can decide what comes next. `flows.order` submits the waves to a task runner, or calls the same
steps as functions, one after the other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INGEST = "ingest"
"""The stage whose facts are the digests of the input."""

LEDGER = "ledger"
"""The stage that charges; noise is drawn after it."""


Step = Any
"""The task of a stage, as the decorator `step` of `tasks.runs.steps` makes it for Prefect."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a step.

    keys : what names its piece of work: universe, level, shard.
    after : the calls that it waits for, besides those of earlier waves.
    is_small : it takes no longer than Prefect takes for a task, which it may share with others.
    """

    step: Step
    keys: tuple[Any, ...]
    after: tuple[Call, ...]
    is_small: bool = False

    @property
    def name(self) -> str:
        """What it is named in the record of a run's work, such as `measure persons Block 00003`."""
        return " ".join([self.step.name, *map(str, self.keys)])


Wave = Mapping[str, Sequence[Call]]
"""Calls by stage. They go side by side, but for calls that wait for others."""

Order = Generator[Wave, None, None]
"""The waves of a run, one after the other."""


class Aside(dict[str, Sequence[Call]]):
    """A wave that is begun and left to itself; yielded again as a plain wave, it is waited for."""


def call(step: Step, *keys: Any, after: Iterable[Call] = (), is_small: bool = False) -> Call:
    """The call of a step with these keys, once the calls of `after` have ended."""
    return Call(step, keys, tuple(after), is_small)


def shared(calls: Sequence[Call]) -> list[list[Call]]:
    """New calls of a wave, those together that can share a task: small ones of one step that wait
    for no others of the wave but each other."""
    new, of_step = set(calls), dict[Step, list[Call]]()
    found: list[list[Call]] = []
    for one in calls:
        own = of_step.get(one.step, [])
        if one.is_small and (set(one.after) & new).issubset(own):
            if not own:
                found.append(of_step.setdefault(one.step, own))
            own.append(one)
        else:
            found.append([one])
    return found


def one_by_one(stages: Mapping[str, Step], after: Iterable[Call] = ()) -> Order:
    """Stages of one call each, one after the other."""
    made = tuple(after)
    for stage, step in stages.items():
        made = (call(step, after=made),)
        yield {stage: made}
