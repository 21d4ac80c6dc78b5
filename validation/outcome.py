"""Outcomes of rules and of checks.

An outcome's text is public. Estimates, constraints, measurements and microdata are public, so it
may name geounits, cells and files; nothing here may be given a confidential value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

SHOWN_FAILURES = 3


@dataclass(frozen=True)
class Outcome:
    """Whether a rule on the input, or a check of the result, holds.

    subject : the suite of a rule, the universe of a check.
    detail : requirement of a rule; result of a check.
    """

    name: str
    subject: str
    passed: bool
    detail: str = field(default="", compare=False)


class UnusableRunFile(Exception):
    """A file of the run that is missing or does not have the form of its layout."""


@dataclass
class Failures:
    """Failures of one check: their number, and the first few in words."""

    count: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, text: str, count: int = 1) -> None:
        """Record `count` failures, of which `text` describes the first."""
        self.count += count
        if len(self.texts) < SHOWN_FAILURES:
            self.texts.append(text)

    def extend(self, later: Failures) -> None:
        """Add failures of the same check elsewhere, later in its order."""
        self.count += later.count
        self.texts = [*self.texts, *later.texts][:SHOWN_FAILURES]

    def add_each(self, wrong: ArrayLike, describe: Callable[[int], str] | str) -> None:
        """Record a failure wherever the mask `wrong` holds.

        `describe(i)` words the first one, or one text any of them.
        """
        where = np.flatnonzero(np.asarray(wrong, dtype=bool))
        if where.size:
            text = describe if isinstance(describe, str) else describe(int(where[0]))
            self.add(text, count=where.size)

    def outcome(self, name: str, universe: str, detail: str) -> Outcome:
        """The check's outcome; `detail` is its text if nothing was found wrong.

        >>> failures = Failures()
        >>> failures.add("County 44001 is twice in the spine", count=2)
        >>> failures.outcome("spine", "persons", "").detail
        'County 44001 is twice in the spine; 2 failures in all'
        """
        if not self.count:
            return Outcome(name, universe, True, detail)
        shown = "; ".join(self.texts)
        if self.count > len(self.texts):
            shown += f"; {self.count} failures in all"
        return Outcome(name, universe, False, shown)
