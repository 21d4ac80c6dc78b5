"""Likelihoods of an area's counts given a release, and areas rebuilt by them.

A published figure makes every true total of its row so likely: by a perturbation table under cell
keys, by the variance under Gaussian noise. The sum of the costs -log p over all rows is least at
the likeliest block. A row's cost is linear between whole totals: weights z_t >= 0 that add to one,
with sum t z_t = (A x)_r and cost sum c_t z_t. That is the convex hull of c, and c itself where c is
convex.

An attacker who knows the method weighs the possible counts of a figure: by the perturbation table
under cell keys, by the chances of random rounding; else counts near the figure weigh most. An
attack that took any of the possible people would make such methods look stronger than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import sparse

from ...solvers.highs import LinearProgram
from ..settings import CellKeys, Method, Rounding
from .reconstruction import (
    EFFORT,
    UNBOUNDED,
    BlockStatus,
    Effort,
    Reconstruction,
    TableSystem,
    finite,
    tighten,
)
from .release import Release

Figure = tuple[float, ...]
"""Published values of a row, such as a value and its bounds."""


@dataclass(frozen=True)
class RowCosts:
    """Costs of the totals `lowest`, `lowest + 1`, ... of a row; others cannot be. Zeros throughout
    are bounds alone.
    """

    lowest: int
    costs: np.ndarray

    @property
    def highest(self) -> int:
        """Largest count with a cost."""
        return self.lowest + len(self.costs) - 1


def perturbation_costs(
    published: int, chance: Callable[[np.ndarray, int], np.ndarray], reach: int
) -> RowCosts:
    """-log P(published | true total) for true totals within `reach` of the published one.

    `chance(totals, published)` gives the probabilities. Those of chance 0 at either end are
    dropped, within they cost more than all others together. Raises ValueError if all are 0.
    """
    totals = np.arange(max(published - reach, 0), published + reach + 1)
    chances = chance(totals, published)
    possible = np.flatnonzero(chances > 0)
    if not len(possible):
        raise ValueError("no true total within the reach can be published like this")
    part = slice(possible[0], possible[-1] + 1)
    return RowCosts(int(totals[possible[0]]), -np.log(np.maximum(chances[part], 1e-30)))


def likeliest(
    system: TableSystem, costs: Sequence[RowCosts | None], effort: Effort = EFFORT
) -> np.ndarray | None:
    """The histogram of one block whose rows cost least together, if one was found; rows with None
    cost nothing.

    Costs that are not convex are replaced by their convex hulls. Raises ValueError without one
    entry a row.
    """
    if len(costs) != system.n_rows:
        raise ValueError(f"{system.n_rows} rows need as many costs, not {len(costs)}")
    ends = [(0, UNBOUNDED) if c is None else (c.lowest, c.highest) for c in costs]
    row_lower, row_upper = np.array(ends, dtype=np.int64).T
    lower, upper = np.zeros(system.n_cells, np.int64), np.full(system.n_cells, UNBOUNDED)
    if not tighten(*system.lines, row_lower.copy(), row_upper.copy(), lower, upper):
        return None
    used = np.flatnonzero(upper > 0)
    matrix = sparse.csr_array(sparse.csc_array(system.matrix)[:, used])
    priced = {row: cost for row, cost in enumerate(costs) if cost is not None and cost.costs.any()}
    program, objective = _program(matrix, priced, row_lower, row_upper)
    n_weights = program.n_columns - len(used)
    result = program.solve(
        objective,
        np.concatenate([lower[used].astype(float), np.zeros(n_weights)]),
        np.concatenate([finite(upper[used]), np.ones(n_weights)]),
        integral=np.arange(program.n_columns) < len(used),
        **effort.limits,
    )
    if result.incumbent is None:
        return None
    histogram = np.zeros(system.n_cells, dtype=np.int64)
    histogram[used] = np.rint(result.incumbent[: len(used)]).astype(np.int64)
    return histogram


def _program(
    matrix: sparse.csr_array,
    priced: Mapping[int, RowCosts],
    row_lower: np.ndarray,
    row_upper: np.ndarray,
) -> tuple[LinearProgram, np.ndarray]:
    """Cells, then the weights of every priced row; and the objective."""
    rows, of_rows = list(priced), priced.values()
    lengths = np.array([len(cost.costs) for cost in of_rows], dtype=np.int64)
    n_cells = matrix.shape[1]
    program = LinearProgram(n_cells + int(lengths.sum()))
    free = np.setdiff1d(np.arange(matrix.shape[0]), rows)
    part = sparse.coo_array(matrix[free])
    high = finite(row_upper[free])
    program.add_rows(part.coords[0], part.coords[1], part.data, row_lower[free], high)
    weights = n_cells + np.arange(int(lengths.sum()))
    row = np.repeat(np.arange(len(rows)), lengths)
    totals = np.concatenate(
        [np.zeros(0), *(cost.lowest + np.arange(len(cost.costs)) for cost in of_rows)]
    )
    own = sparse.coo_array(matrix[rows])
    program.add_rows(
        np.concatenate([own.coords[0], row]),
        np.concatenate([own.coords[1], weights]),
        np.concatenate([own.data, -totals]),
        np.zeros(len(rows)),
    )
    program.add_rows(row, weights, 1.0, np.ones(len(rows)))
    return program, np.concatenate([np.zeros(n_cells), *(cost.costs for cost in of_rows)])


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
    """The people of `found`, with those of areas with several solutions replaced by the likeliest.

    `lower` and `upper` are the bounds `(areas, rows)` that `found` keeps. Where no figure is drawn
    or leaves a range, or none is found in time, people stay as they are.
    """
    several = np.isin(found.status, (BlockStatus.SEVERAL, BlockStatus.OPEN, BlockStatus.UNSOLVED))
    open_rows = (upper > lower) & (upper < UNBOUNDED // 2)
    chosen = np.flatnonzero(several & open_rows.any(axis=1))
    if not len(chosen):
        return found
    chance = chance_of(release.method, release.draw.strength)
    # No count is published as -1, the mark for withheld figures and for sums.
    values = np.full(lower[chosen].shape, -1.0)
    published = release.values()[chosen]
    values[:, : published.shape[1]] = np.nan_to_num(published, nan=-1.0)
    figures = np.stack([values, lower[chosen], upper[chosen]], axis=2)
    costs = lru_cache(maxsize=None)(lambda figure: _costs(figure, chance))
    solved = dict[int, np.ndarray]()
    for at, rows in zip(chosen.tolist(), figures.tolist(), strict=True):
        priced = [costs(tuple(figure)) for figure in rows]
        # Another histogram may be as likely.
        if (histogram := likeliest(release.bounded_system, priced, effort)) is not None:
            solved[at] = histogram
    return _replace_histograms(found, solved)


def _costs(figure: Figure, chance: tuple[Chance, int] | None) -> RowCosts | None:
    """Costs of the possible counts of a value, within its bounds."""
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


def _replace_histograms(found: Reconstruction, likely: Mapping[int, np.ndarray]) -> Reconstruction:
    """Replace the histograms of some areas, by number, of a reconstruction; proven facts stay."""
    kept = ~np.isin(found.block, list(likely))
    cells = [np.flatnonzero(histogram) for histogram in likely.values()]
    counts = [own[at] for own, at in zip(likely.values(), cells, strict=True)]
    areas = np.repeat(np.array([*likely], dtype=np.int64), [len(at) for at in cells])
    block = np.concatenate([found.block[kept], areas])
    cell = np.concatenate([found.cell[kept], *cells])
    count = np.concatenate([found.count[kept], *counts])
    return replace(found, block=block, cell=cell, count=count)
