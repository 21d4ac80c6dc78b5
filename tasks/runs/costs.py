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

    def of(self, size: float) -> float:
        """Seconds of a task."""
        return self.seconds + self.per_million * size / 1e6


_DECLARED = read_declared(Path(__file__).parent / "presets" / "rates.toml")

RATES: Mapping[str, Rate] = {step: Rate(**entry) for step, entry in _DECLARED.items()}
"""By step, of a fiftieth and the whole of a generated nation.

`.venv/bin/python -m benchmarks.rates RUN_DIR ...` fits them to finished runs; where those have no
small tasks, what every task takes is a guess. What a million units take to measure,
to estimate, to write and to check is set so that the sums over both runs come out. Rates only set
proportions: what a run's own tasks take rescales them."""

REUSED = 0.05
"""Seconds of a task that finds what an earlier attempt has made."""

WEIGHT = 3.0
"""Seconds of finished work at which the rates are believed as much as what the run has shown."""


@dataclass
class _Seen:
    """What finished tasks took, by whatever it is in proportion to."""

    amount: float = 0.0
    seconds: float = 0.0

    def add(self, amount: float, seconds: float) -> None:
        self.amount += amount
        self.seconds += seconds


@dataclass
class Costs:
    """Expected seconds of tasks.

    Those of `rates`, rescaled by what the finished ones among them took. A step without a rate is
    taken to cost what its finished tasks did by size, and until one has ended, what tasks did on
    average.
    """

    rates: Mapping[str, Rate] = field(default_factory=lambda: RATES)
    _expected: _Seen = field(default_factory=_Seen)
    _sizes: dict[str, _Seen] = field(default_factory=lambda: defaultdict(_Seen))
    _tasks: _Seen = field(default_factory=_Seen)

    def observe(self, step: str, size: float, seconds: float) -> None:
        """A task has ended that did its work."""
        self._tasks.add(1.0, seconds)
        if (rate := self.rates.get(step)) is not None:
            self._expected.add(rate.of(size), seconds)
        else:
            self._sizes[step].add(size, seconds)

    def seconds(self, step: str, size: float) -> float:
        """What a task of this size is expected to take."""
        if (rate := self.rates.get(step)) is not None:
            seen = self._expected
            return rate.of(size) * (seen.seconds + WEIGHT) / (seen.amount + WEIGHT)
        for seen, amount in ((self._sizes[step], size), (self._tasks, 1.0)):
            if seen.amount:
                return seen.seconds * amount / seen.amount
        return 1.0
