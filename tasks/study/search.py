"""Searches: grids of losses, and the trials that they request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """A choice of settings under some losses, and the result of its replicates.

    name : of its folder. variant : name of the choice. losses : loss of each geolevel, root first.
    mean, standard_error : of the criterion's value. met : whether the mean meets the criterion.
    """

    name: str
    variant: str
    losses: Losses
    mean: float
    standard_error: float
    met: bool

    @property
    def total(self) -> Fraction:
        """Loss of the whole."""
        return sum(self.losses.values(), Fraction(0))


def settings_of(settings: TuneSettings, variant: str, losses: Losses) -> ProductSettings:
    """The settings of a choice under some losses."""
    universe = settings.criterion.universe
    return settings.SEARCHED.with_losses(settings.choices[variant], universe, losses)


def new_trial(run: RunDirectory, settings: TuneSettings, variant: str, losses: Losses) -> str:
    """Write the settings of a choice under some losses to the folder of their trial, and return
    its name; the same settings are the same trial.

    Only the universe of the criterion is measured.
    """
    tried = settings_of(settings, variant, losses)
    return write_trial(run, settings.SEARCHED.measuring_only(tried, settings.criterion.universe))
