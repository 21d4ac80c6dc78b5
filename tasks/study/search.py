"""Searches: grids of losses, and the trials that they request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from ..runs.directory import RunDirectory
from ..runs.settings import ProductSettings
from .settings import TuneSettings
from .trials import Losses, write_trial

EXACT = Fraction(10**7)
"""Loss of a geolevel that is treated as exact: its noise is 0 but with a chance below 1e-100."""

SIGNIFICANT_DIGITS = 4


def round_loss(loss: Fraction) -> Fraction:
    """A loss to four significant digits, so that the settings that are found can be read.

    >>> round_loss(Fraction(1, 3))
    Fraction(3333, 10000)
    """
    return Fraction(f"{float(loss):.{SIGNIFICANT_DIGITS}g}")


def loss_grid(lowest: Fraction, highest: Fraction, step: Fraction) -> tuple[Fraction, ...]:
    """Losses `lowest * step^k` up to the first that is at least `highest`, each rounded.

    >>> [str(loss) for loss in loss_grid(Fraction(1), Fraction(3), Fraction(2))]
    ['1', '2', '4']
    """
    points = [lowest]
    while points[-1] < highest:
        points.append(points[-1] * step)
    return tuple(round_loss(point) for point in points)


def bound_grid(grid: Sequence[Fraction], most: Fraction | None) -> tuple[Fraction, ...]:
    """The points of a grid below the most that may be, and this one last; None is no limit.

    >>> [str(loss) for loss in bound_grid((Fraction(1), Fraction(2), Fraction(4)), Fraction(3))]
    ['1', '2', '3']
    """
    if most is None or grid[-1] <= most:
        return tuple(grid)
    return (*(point for point in grid if point < most), most)


def scale_losses(losses: Losses, total: Fraction) -> dict[str, Fraction]:
    """Losses in the same proportions that add up to a total.

    >>> {name: str(loss) for name, loss in scale_losses({"a": Fraction(1)}, Fraction(2)).items()}
    {'a': '2'}
    """
    whole = sum(losses.values(), Fraction(0))
    return {geolevel: total * loss / whole for geolevel, loss in losses.items()}


Point = TypeVar("Point")


def smallest(points: Sequence[Point], meets: Callable[[Point], bool]) -> int | None:
    """Position of the first point that meets the criterion; None if the last does not.

    Bisection: every point after one that meets it is assumed to meet it too. The last point is
    asked first.
    """
    if not meets(points[-1]):
        return None
    return bisect_left(points[:-1], True, key=meets)


def search_weights(
    names: Sequence[str],
    step: Fraction,
    rounds: int,
    is_better: Callable[[Mapping[str, Fraction], Mapping[str, Fraction]], bool],
) -> dict[str, Fraction]:
    """Weights of names, all 1 at first, changed one at a time while that is better.

    In each round every name's weight is multiplied by the step, or if that is not better divided by
    it, as `is_better(new, old)` decides. The search ends with a round that changes nothing.
    """
    weights = dict.fromkeys(names, Fraction(1))
    for _ in range(rounds):
        has_changed = False
        for name in names:
            for factor in (step, 1 / step):
                tried = weights | {name: weights[name] * factor}
                if is_better(tried, weights):
                    weights, has_changed = tried, True
                    break
        if not has_changed:
            break
    return weights


def search_geolevels(
    geolevels: Sequence[str],
    grid: Sequence[Fraction],
    step: Fraction,
    meets: Callable[[Losses], bool],
) -> Losses | None:
    """A loss for every geolevel, found from the root down ([TopDown2022], section 8.1).

    First the smallest loss on the grid for each geolevel alone, all others being exact. Then, from
    the root down, a geolevel joins those above it with that loss, those below still being exact,
    and the losses of all that have joined are raised in proportion, by powers of `step`, until the
    criterion is met. None if it cannot be met within the grid.
    """

    def exact_but(losses: Losses) -> dict[str, Fraction]:
        return {geolevel: losses.get(geolevel, EXACT) for geolevel in geolevels}

    def meets_alone(geolevel: str) -> Callable[[Fraction], bool]:
        return lambda loss: meets(exact_but({geolevel: loss}))

    alone = {}
    for geolevel in geolevels:
        found = smallest(grid, meets_alone(geolevel))
        if found is None:
            return None
        alone[geolevel] = grid[found]
    joined: dict[str, Fraction] = {}
    for geolevel in geolevels:
        joined[geolevel] = alone[geolevel]
        raised = [
            {name: round_loss(loss * step**power) for name, loss in joined.items()}
            for power in range(len(grid))
        ]
        found = smallest(raised, lambda losses: meets(exact_but(losses)))
        if found is None:
            return None
        joined = raised[found]
    return joined


@dataclass(frozen=True)
class Trial:
    """Settings of a trial, and their name.

    losses : loss of each geolevel, root first.
    weights : factors of the shares of queries, 1 where omitted.
    """

    name: str
    variant: str
    losses: Losses
    weights: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def total(self) -> Fraction:
        """Loss of the whole."""
        return sum(self.losses.values(), Fraction(0))


@dataclass(frozen=True)
class TrialOutcome:
    """Result of a trial's replicates: mean of the criterion's value and its standard error."""

    trial: Trial
    mean: float
    standard_error: float
    met: bool


def settings_of(settings: TuneSettings, trial: Trial) -> ProductSettings:
    """Return the settings of a trial: the choice of its name under its losses and weights."""
    searched, universe = settings.SEARCHED, settings.criterion.universe
    tried = searched.with_losses(settings.choices[trial.variant], universe, trial.losses)
    return searched.with_weights(tried, universe, trial.weights) if trial.weights else tried


def new_trial(
    run: RunDirectory,
    settings: TuneSettings,
    variant: str,
    losses: Losses,
    weights: Mapping[str, Fraction],
) -> Trial:
    """A trial of a choice under some losses and weights, its settings written to its folder.

    Only the universe of the criterion is measured. The same settings are the same trial.
    """
    universe = settings.criterion.universe
    tried = settings_of(settings, Trial("", variant, losses, weights))
    name = write_trial(run, settings.SEARCHED.measuring_only(tried, universe))
    return Trial(name, variant, losses, weights)
