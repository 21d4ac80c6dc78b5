"""The plan of a mechanism by levels, and what follows from it: charge, costs, margins, bars.

A product that shares one loss among levels tells what every level is measured with; what is the
same for all such products follows from that here, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ...validation.outcome import Failures, UnusableRunFile
from ..ledger.accounting import Guarantee, epsilons
from ..ledger.charges import Draw, NoiseTerm
from ..ledger.exact_curve import PrivacyCurve
from ..ledger.summary import REPORT_DELTA
from ..noise.draws import Noise
from ..noise.margins import loss_for_margin
from ..noise.mechanisms import DISCRETE_LAPLACE
from ..pages.document import Section
from ..runs.errors import BudgetRefused, InputRefused, refused
from .reports import bars_panel
from .statement import Loss


@dataclass(frozen=True)
class MeasuredLevel:
    """What one level is measured with.

    name : of the level, for people.
    part : the name under which its noise is charged.
    share : of the loss of the plan; 0 for a level that is not measured.
    noise : of every answer; None where there is none.
    n_answers : how many answers there are; None where that depends on earlier outcomes.
    """

    name: str
    part: str
    share: Fraction
    noise: Noise | None
    n_answers: int | None = None


@dataclass(frozen=True)
class NoisePlan:
    """What all levels of a universe are measured with.

    mechanism : the name of the distribution of all noise.
    loss : what all levels cost, rho or epsilon; None without noise.
    guarantee : what that guarantees; None if nothing.
    delta : at which the epsilon of a rho is told.
    """

    universe: str
    mechanism: str
    loss: Fraction | None
    guarantee: Guarantee | None
    levels: tuple[MeasuredLevel, ...]
    delta: Fraction = REPORT_DELTA

    @property
    def is_pure(self) -> bool:
        """Whether the loss is an epsilon of pure differential privacy, rather than a rho."""
        return self.mechanism == DISCRETE_LAPLACE

    @property
    def symbol(self) -> str:
        """What the loss is called."""
        return "epsilon" if self.is_pure else "rho"

    @property
    def stated_loss(self) -> str:
        """The loss in full, for files and tables; infinite without noise."""
        return "inf" if self.loss is None else str(self.loss)

    @property
    def promised(self) -> Guarantee:
        """The guarantee; raises ValueError for a plan that has none."""
        if self.guarantee is None:
            raise ValueError(f"measuring {self.universe} so guarantees nothing")
        return self.guarantee

    @property
    def bounded_rho(self) -> str:
        """Rho of bounded zCDP per person, in which products add up; infinite if nothing holds."""
        return "inf" if self.guarantee is None else str(self.guarantee.bounded_rho)

    def draw(self, curve: PrivacyCurve | None) -> Draw:
        """What measuring all levels is charged as: its guarantee, every noise, how many values.

        `curve` is that of one person's change, whatever the plan's own neighbours are; None where
        it is not known. Raises ValueError for a plan that guarantees nothing.
        """
        noisy = [(level, level.noise) for level in self.levels if level.noise is not None]
        terms = frozenset(NoiseTerm(level.part, noise) for level, noise in noisy)
        numbers = [level.n_answers for level, _ in noisy]
        known = [number for number in numbers if number is not None]
        n_values = sum(known) if len(known) == len(numbers) else None
        return Draw(self.universe, self.mechanism, self.promised, terms, n_values, curve)

    @property
    def stated(self) -> Loss:
        """The loss as the certificate states it; raises ValueError if nothing is guaranteed."""
        return Loss(self.universe, self.mechanism, self.promised, self.delta)

    def epsilons(self, share: Fraction = Fraction(1)) -> dict[str, float | str]:
        """Epsilon of a share of the loss, between the plan's own neighbours.

        Of a rho it is that at `delta`, by the tight and by the simple conversion.
        """
        if self.loss is None:
            return dict.fromkeys(("tight", "simple"), "inf" if share else 0.0)
        if self.is_pure:
            return dict.fromkeys(("tight", "simple"), float(self.loss * share))
        return {**epsilons(self.loss * share, self.delta)}

    def needed(self, level: MeasuredLevel, target: str, margin: int, what: str) -> str:
        """A sentence: the loss at which the answers of a level have a margin of error of 95 %.

        `what` the answers count begins the sentence; `target` is how the user named the level.
        Raises InputRefused for a plan without noise, and for a margin that cannot be met.
        """
        if level.noise is None or self.loss is None:
            raise InputRefused(f"--target {target}: without noise every margin is 0.")
        with refused(f"--target {target}: "):
            total = loss_for_margin(level.noise, self.loss, margin)
        return (
            f"{what} is within {margin} of the truth, but for post-processing, with a probability "
            f"of 95 % at {self.symbol} {float(total):.6g} and these shares (now "
            f"{float(self.loss):.4g})"
        )

    def budget_panel(self, words: str) -> Section:
        """The share of every level, as bars of a front page."""
        names = [level.name for level in self.levels]
        shares = {"budget": [100 * float(level.share) for level in self.levels]}
        return bars_panel("The budget", words, names, shares, value_label="% of the loss")

    def noise_panel(self, words: str) -> Section:
        """The standard deviation of every level's noise, as bars of a front page."""
        noises = {level.name: level.noise for level in self.levels if level.noise is not None}
        deviations = {"noise": [math.sqrt(noise.variance) for noise in noises.values()]}
        title, label = "What the budget implies", "standard deviation of the noise"
        return bars_panel(title, words, list(noises), deviations, value_label=label)


def refuse_other_noise(check: Callable[[Failures], None]) -> None:
    """Raise BudgetRefused, before any noise is drawn, if a check by independent code fails.

    `check` recomputes from the run's files what will be drawn and what it costs.
    """
    failures = Failures()
    try:
        check(failures)
    except UnusableRunFile as error:
        failures.add(str(error))
    if failures.count:
        raise BudgetRefused(f"{failures.texts[0]}; start a new run, since nothing was drawn.")
