"""How long tasks are expected to take, from their public sizes and from tasks that have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .declared import read_declared


@dataclass(frozen=True)
class Rate:
    """Processor seconds of every task of a step, and of every million units of its size.

    again : a resumed run does the step again.
    """

    seconds: float
    per_million: float
    again: bool = False


_DECLARED = read_declared(Path(__file__).parent / "presets" / "rates.toml")

RATES: Mapping[str, Rate] = {step: Rate(**told) for step, told in _DECLARED.items()}
"""By step, of a fiftieth and the whole of a generated nation.

`.venv/bin/python -m benchmarks.rates RUN_DIR ...` fits them to finished runs; where those have no
small tasks, what every task takes is a guess. What a million units take to measure,
to estimate, to write and to check is set so that the sums over both runs come out. Rates only set
proportions: what a run's own tasks take rescales them."""

REUSED = 0.05
"""Seconds of a task that finds what an earlier attempt has made."""

WEIGHT = 3.0
"""Processor seconds of finished work at which a stage is believed as much as the run as a whole."""

HALF_LIFE = 90.0
"""Seconds of later work after which a task tells half as much of how busy the machine is."""


@dataclass
class _Seen:
    tasks: int = 0
    size: float = 0.0
    expected: float = 0.0
    work: float = 0.0

    def add(self, size: float, expected: float, work: float) -> None:
        self.tasks += 1
        self.size += size
        self.expected += expected
        self.work += work


@dataclass
class Costs:
    """Expected seconds of tasks.

    Expected processor seconds are those of `rates`, rescaled by what was seen of the stage, the
    step and the run; a step without a rate is taken to cost what its finished tasks did by size,
    and until one has ended, what tasks did on average. How much longer a task takes than it
    computes is told by the last ones: other people's work on a machine comes and goes.
    """

    rates: Mapping[str, Rate] = field(default_factory=lambda: RATES)
    _seen: dict[str, _Seen] = field(default_factory=lambda: defaultdict(_Seen))
    _recent: tuple[float, float] = (1.0, 1.0)
    """Seconds, and processor seconds, of the last tasks."""

    def observe(
        self, stage: str, step: str, size: float, seconds: float, cpu: float | None = None
    ) -> None:
        """A task has ended that did its work; without processor seconds, it did nothing else."""
        work = cpu or seconds
        expected = self._default(step, size)
        for kind in (f"step {step}", f"stage {stage}"):
            self._seen[kind].add(size, expected or 0.0, work)
        self._seen["any"].add(size, 0.0, work)
        if expected is not None:
            self._seen["all"].add(size, expected, work)
        fading = 0.5 ** (seconds / HALF_LIFE)
        wall, computing = self._recent
        # Threads of a task can compute for longer than it takes.
        self._recent = (wall * fading + seconds, computing * fading + min(work, seconds))

    def seconds(self, stage: str, step: str, size: float) -> float:
        """What a task of this size is expected to take."""
        wall, computing = self._recent
        return self._work(stage, step, size) * wall / computing if computing else 0.0

    def _work(self, stage: str, step: str, size: float) -> float:
        expected = self._default(step, size)
        if expected is None:
            own, every = self._seen[f"step {step}"], self._seen["any"]
            if own.tasks:
                return own.work * (size / own.size if own.size else 1 / own.tasks)
            return every.work / every.tasks if every.tasks else 1.0
        ratio = 1.0
        for kind in ("all", f"step {step}", f"stage {stage}"):
            seen = self._seen[kind]
            ratio = (seen.work + WEIGHT * ratio) / (seen.expected + WEIGHT)
        return expected * ratio

    def _default(self, step: str, size: float) -> float | None:
        rate = self.rates.get(step)
        return None if rate is None else rate.seconds + rate.per_million * size / 1e6
