"""How long tasks are expected to take, from their public sizes and from those that have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spineflow.tasks.runs.work import Task


@dataclass(frozen=True)
class Rate:
    """Seconds of every task of a step, and of every million units of its size.

    again : a resumed run does the step again.
    """

    seconds: float
    per_million: float
    again: bool = False


RATES: Mapping[str, Rate] = {
    "ingest": Rate(3.0, 51.0),
    "build spine": Rate(0.5, 7.6),
    "charge ledger": Rate(1.0, 0.8, again=True),
    "constrain": Rate(0.2, 3.0, again=True),
    "measure": Rate(0.3, 0.05),
    "estimate": Rate(0.16, 82.0),
    "combine": Rate(0.16, 82.0),
    "write microdata": Rate(0.5, 30.0),
    "write tables": Rate(2.0, 72.0),
    "write margins": Rate(2.0, 250.0),
    "accuracy": Rate(2.0, 100.0, again=True),
    "check": Rate(2.0, 430.0, again=True),
    "release": Rate(0.5, 12.0, again=True),
    "summarise spine": Rate(0.3, 4.0),
    "report": Rate(0.4, 0.0, again=True),
}
"""Processor seconds by step, of a fiftieth of a generated nation.

`.venv/bin/python tests/benchmarks/rates.py --cpu RUN_DIR ...` fits them to finished runs; where
those have tasks of one size alone, what every task takes is a guess. They only set proportions:
what a run's own tasks take rescales them."""

REUSED = 0.05
"""Seconds of a task that finds what an earlier attempt has made."""

WEIGHT = 3.0
"""Seconds of finished work at which a stage is believed as much as the run as a whole."""


@dataclass
class _Seen:
    tasks: int = 0
    size: float = 0.0
    expected: float = 0.0
    seconds: float = 0.0

    def add(self, size: float, expected: float, seconds: float) -> None:
        self.tasks += 1
        self.size += size
        self.expected += expected
        self.seconds += seconds


@dataclass
class Costs:
    """Expected seconds of tasks, rescaled by what was seen of their stage, their step and the run.

    A step without a rate is taken to cost what its finished tasks did by size, and until one has
    ended, what tasks did on average.
    """

    rates: Mapping[str, Rate] = field(default_factory=lambda: RATES)
    _seen: dict[str, _Seen] = field(default_factory=lambda: defaultdict(_Seen))
    _all: _Seen = field(default_factory=_Seen)

    def observe(self, stage: str, step: str, size: float, seconds: float) -> None:
        """A task has ended that did its work."""
        expected = self._default(step, size)
        for seen in (self._seen[f"step {step}"], self._seen[f"stage {stage}"], self._all):
            seen.add(size, expected or 0.0, seconds if expected is not None else 0.0)
        if expected is None:
            self._seen[f"step {step}"].seconds += seconds
        self._seen["any"].add(size, 0.0, seconds)

    def seconds(self, stage: str, step: str, size: float) -> float:
        """What a task of this size is expected to take."""
        expected = self._default(step, size)
        if expected is None:
            own, every = self._seen[f"step {step}"], self._seen["any"]
            if own.tasks:
                return own.seconds * (size / own.size if own.size else 1 / own.tasks)
            return every.seconds / every.tasks if every.tasks else 1.0
        return expected * self._ratio(stage, step)

    def _default(self, step: str, size: float) -> float | None:
        rate = self.rates.get(step)
        return None if rate is None else rate.seconds + rate.per_million * size / 1e6

    def _ratio(self, stage: str, step: str) -> float:
        ratio = 1.0
        for seen in (self._all, self._seen[f"step {step}"], self._seen[f"stage {stage}"]):
            ratio = (seen.seconds + WEIGHT * ratio) / (seen.expected + WEIGHT)
        return ratio


def fitted(tasks: Iterable[Task]) -> dict[str, Rate]:
    """Rates of steps that have finished tasks, by least squares with neither part negative.

    Relative errors are squared, so that small tasks tell what every task costs.
    """
    import numpy as np
    from scipy.optimize import nnls

    of_step: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task in tasks:
        if not task.reused:
            of_step[task.step].append((task.size, task.seconds))
    rates = {}
    for step, points in of_step.items():
        size, seconds = np.array(points).T
        weight = 1 / np.maximum(seconds, 0.5)
        matrix = np.column_stack([np.ones(len(size)), size / 1e6]) * weight[:, None]
        fixed, slope = nnls(matrix, seconds * weight)[0]
        again = RATES[step].again if step in RATES else False
        rates[step] = Rate(float(f"{fixed:.2g}"), float(f"{slope:.3g}"), again)
    return rates
