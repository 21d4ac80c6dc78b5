"""Measurement plans: measures, noise and guarantee, which a ledger is charged for.

The types are read by everything that follows from a plan (`products.plan`): the rows of the ledger,
budgets, statements, certificates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ..noise.distributions import DISCRETE_LAPLACE, Noise
from .accounting import PURE_DP, Guarantee, epsilon_tight, epsilons
from .exact_curve import PrivacyCurve

REPORT_DELTA = Fraction(1, 10**10)
"""Delta at which the epsilon of a rho is reported; the mechanisms' own add to it."""

STATED_DELTAS = (Fraction(1, 10**6), Fraction(1, 10**8), REPORT_DELTA)
"""Deltas at which a certificate states epsilons, in addition to the delta of the settings."""


@dataclass(frozen=True)
class Measure:
    """The answers to one query in areas of one level, all with noise of one distribution.

    part : the name under which the noise is charged and drawn.
    noise : noise of every answer; None without noise.
    share : share of the loss of the universe's plan; 0 for a level that is not measured.
    moved : the most by which neighbouring datasets differ in all these answers: the squared L2
        norm under discrete Gaussian noise, whose loss is moved / (2 sigma^2), and the L1 norm under
        discrete Laplace noise, whose loss is moved / scale.
    areas : areas of the level, measured or not. answers : noisy answers; None where their number
        depends on earlier outcomes, as areas are None where their number is unknown.
    named : the level for readers, where that is not `level`; `place` is either.
    """

    part: str
    noise: Noise | None
    share: Fraction = Fraction(1)
    level: str = ""
    query: str = ""
    moved: int | None = None
    areas: int | None = None
    answers: int | None = None
    named: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """Name of the level for readers."""
        return self.named or self.level

    @property
    def variance(self) -> float:
        """Variance of the noise of every answer; 0 without noise."""
        return 0.0 if self.noise is None else self.noise.variance

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of every answer; 0 without noise."""
        return math.sqrt(self.variance)

    def part_of(self, loss: Fraction | None) -> str:
        """The part of a plan's loss that the answers spend, as `p/q`; `inf` without noise."""
        return "inf" if self.noise is None or loss is None else str(loss * self.share)


@dataclass(frozen=True)
class UniversePlan:
    """The measures of one universe and their guarantee: one draw of the ledger.

    universe : a universe of records, or another name under which a draw is charged.
    mechanism : the distribution of all noise.
    guarantee : None without a guarantee.
    loss : rho or epsilon of all measures; None without noise.
    delta : delta at which the epsilon of a rho is reported.
    curve : the privacy curve of one person's change; None where it is not known.
    """

    universe: str
    mechanism: str
    guarantee: Guarantee | None
    loss: Fraction | None = None
    measures: tuple[Measure, ...] = ()
    delta: Fraction = REPORT_DELTA
    curve: PrivacyCurve | None = field(default=None, compare=False)

    @property
    def promised(self) -> Guarantee:
        """The guarantee; raises ValueError for a plan without one."""
        if self.guarantee is None:
            raise ValueError(f"the measurement of {self.universe} has no guarantee")
        return self.guarantee

    @property
    def is_pure(self) -> bool:
        """Whether the loss is an epsilon of pure differential privacy, rather than a rho."""
        if self.guarantee is None:
            return self.mechanism == DISCRETE_LAPLACE
        return self.guarantee.definition == PURE_DP

    @property
    def symbol(self) -> str:
        """Name of the loss, epsilon or rho."""
        return "epsilon" if self.is_pure else "rho"

    @property
    def stated_loss(self) -> str:
        """The loss in full, for files and tables; infinite without noise."""
        return "inf" if self.loss is None else str(self.loss)

    @property
    def bounded_rho(self) -> str:
        """Rho of bounded zCDP per person, additive over products; infinite without guarantee."""
        return "inf" if self.guarantee is None else str(self.guarantee.bounded_rho)

    @property
    def measured(self) -> tuple[Measure, ...]:
        """The measures that have a share of the loss."""
        return tuple(own for own in self.measures if own.share)

    @property
    def noises(self) -> Iterator[tuple[str, Noise]]:
        """Every noise with its name in the charge."""
        return ((own.part, own.noise) for own in self.measures if own.noise is not None)

    @property
    def n_answers(self) -> int | None:
        """Number of noisy answers; None where it depends on earlier outcomes."""
        known = [own.answers for own in self.measures if own.noise is not None]
        return None if None in known or not known else sum(n for n in known if n is not None)

    def epsilons(self, share: Fraction = Fraction(1)) -> dict[str, float | str]:
        """Epsilon of a share of the loss, between the plan's own neighbours.

        For a rho it is at `delta`, by the tight and by the simple conversion.
        """
        if self.loss is None:
            return dict.fromkeys(("tight", "simple"), "inf" if share else 0.0)
        if self.is_pure:
            return dict.fromkeys(("tight", "simple"), float(self.loss * share))
        return {**epsilons(self.loss * share, self.delta)}

    @property
    def epsilon(self) -> float:
        """Epsilon of the guarantee; for a rho by the tight conversion at `delta`."""
        own = self.promised
        return float(own.parameter) if self.is_pure else epsilon_tight(own.parameter, self.delta)

    def at_stated_deltas(self) -> list[UniversePlan]:
        """The same loss, with each delta at which a certificate states epsilons, descending."""
        return [replace(self, delta=own) for own in sorted({*STATED_DELTAS, self.delta})[::-1]]

    @property
    def whole_delta(self) -> Fraction:
        """The delta at which the epsilon holds, the mechanism's own included."""
        return self.promised.delta + (0 if self.is_pure else self.delta)
