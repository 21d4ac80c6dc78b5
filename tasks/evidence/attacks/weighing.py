"""Which counts a published figure most likely stands for, by what is public of the method.

An attacker who knows the method weighs the counts that a figure may stand for: by the perturbation
table under cell keys, by the chances of random rounding; else he takes the figure to be near. An
attack that took any of the possible people would make such methods look stronger than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ..settings import CellKeys, Method, Rounding
from .likelihood import Figure, RowCosts, likeliest_of_blocks, perturbation_costs
from .reconstruction import BlockStatus, Effort, Reconstruction
from .release import Release
from .systems import UNBOUNDED

WIDEST = 60
"""Ranges of more counts than this bound a row, but are not weighed."""

Chance = Callable[[np.ndarray, int], np.ndarray]
"""Probability of a published count, by true counts."""


def chance_of(method: Method, strength: int) -> tuple[Chance, int] | None:
    """Probabilities of published counts and the farthest they are from the true ones; None for a
    method that does not draw counts.
    """
    if isinstance(method, Rounding) and method.how == "random":
        base = method.bases[strength]

        def rounded(counts: np.ndarray, figure: int) -> np.ndarray:
            return np.maximum(1 - np.abs(counts - figure) / base, 0) * (figure % base == 0)

        return rounded, base - 1
    if isinstance(method, CellKeys):
        table = method.perturbation(strength).table()
        reach = table.shape[1] // 2

        def perturbed(counts: np.ndarray, figure: int) -> np.ndarray:
            noise = figure - counts
            column = np.clip(noise + reach, 0, 2 * reach)
            return np.where(
                abs(noise) <= reach, table[np.minimum(counts, len(table) - 1), column], 0
            )

        return perturbed, reach
    return None


def most_likely(
    release: Release, lower: np.ndarray, upper: np.ndarray, found: Reconstruction, effort: Effort
) -> Reconstruction:
    """The people of `found`, those of areas with several solutions replaced by the likeliest.

    `lower` and `upper` are the bounds `(areas, rows)` that `found` keeps. Where no figure is drawn
    or leaves a range, or none is found in time, people stay as they are.
    """
    several = np.isin(found.status, (BlockStatus.SEVERAL, BlockStatus.OPEN, BlockStatus.UNSOLVED))
    open_rows = (upper > lower) & (upper < UNBOUNDED // 2)
    chosen = np.flatnonzero(several & open_rows.any(axis=1))
    if not len(chosen):
        return found
    chance = chance_of(release.method, release.draw.strength)
    # No count is published as -1, which stands for what is withheld, and for sums.
    values = np.full(lower[chosen].shape, -1.0)
    published = release.values()[chosen]
    values[:, : published.shape[1]] = np.nan_to_num(published, nan=-1.0)
    figures = np.stack([values, lower[chosen], upper[chosen]], axis=2)
    likely = likeliest_of_blocks(
        release.bounded_system, figures, lambda figure: _costs(figure, chance), effort=effort
    )
    solved = {int(at): own for at, own in zip(chosen, likely, strict=True) if own is not None}
    return _replaced(found, solved)


def _costs(figure: Figure, chance: tuple[Chance, int] | None) -> RowCosts | None:
    """Costs of the counts that a value may stand for, within its bounds."""
    value, low, high = figure
    if high >= UNBOUNDED // 2:
        return None
    n_counts = int(high - low) + 1
    if n_counts == 1 or n_counts > WIDEST or value < 0:
        return RowCosts(int(low), np.zeros(n_counts))
    if chance is not None:
        return perturbation_costs(round(value), *chance)
    # Nearer counts are likelier; by how much is not known, and squares make all rows give a little.
    return RowCosts(int(low), (low + np.arange(n_counts) - value) ** 2 / n_counts**2)


def _replaced(found: Reconstruction, likely: Mapping[int, np.ndarray]) -> Reconstruction:
    """A reconstruction with other histograms of some areas, by number; what is proven of them
    stays.
    """
    kept = ~np.isin(found.block, list(likely))
    cells = [np.flatnonzero(histogram) for histogram in likely.values()]
    counts = [own[at] for own, at in zip(likely.values(), cells, strict=True)]
    areas = np.repeat(np.array([*likely], dtype=np.int64), [len(at) for at in cells])
    block = np.concatenate([found.block[kept], areas])
    cell = np.concatenate([found.cell[kept], *cells])
    count = np.concatenate([found.count[kept], *counts])
    persons = np.bincount(block, count, minlength=found.n_blocks).astype(np.int64)
    return replace(found, block=block, cell=cell, count=count, persons=persons)
