"""Reconstruction of areas piece by piece, and re-identification of the rebuilt people.

People are rebuilt area by area: as the tables have them, and where that leaves several solutions,
the likeliest. They agree with true people where area and kind do, one to one. An attacker with area
and, say, sex and age of everybody looks them up in the rebuilt records, and learns, say, their
race; the same look-up among true people is not possible, and its precision is an upper limit for
the tables.

A published figure makes every true total of its row so likely: by a perturbation table under cell
keys, by the variance under Gaussian noise. The sum of the costs -log p over all rows is least at
the likeliest block. A row's cost is linear between whole totals: weights z_t >= 0 that add to one,
with sum t z_t = (A x)_r and cost sum c_t z_t. That is the convex hull of c, and c itself where c is
convex.

An attacker who knows the method weighs the possible counts of a figure: by the perturbation table
under cell keys, by the chances of random rounding; else counts near the figure weigh most. An
attack that took any of the possible people would make such methods look stronger than they are.

Putative are the attacker's records that match a record of the release one to one, confirmed those
whose feature (race by ethnicity) is thereby right; precision is confirmed over putative, recall
confirmed over all [Reconstruction2025]. Every rate needs a baseline, the right guesses from the
block's composition without the person's own record, and its ceiling, the same attack on unprotected
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy import sparse

from ...solvers.highs import LinearProgram
from ..methods.publish import ALL
from ..settings import CellKeys, Method, Rounding
from .reconstruction import (
    EFFORT,
    UNBOUNDED,
    BlockStatus,
    Effort,
    Reconstruction,
    TableSystem,
    concatenate_reconstructions,
    finite,
    reconstruct,
    tighten,
)
from .release import SIZES, Release, Row, figures

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


@dataclass(frozen=True)
class Guesses:
    """For every person attacked, whether there is a guess, and the chance that it is right."""

    is_putative: np.ndarray
    right: np.ndarray

    def precision(self, group: np.ndarray) -> float:
        """Confirmed over putative among a group of people, a mask; NaN if nobody is putative."""
        putative = group & self.is_putative
        return float(self.right[putative].mean()) if putative.any() else float("nan")

    def recall(self, group: np.ndarray) -> float:
        """Confirmed over people of a group, a mask; NaN if there are no people."""
        confirmed = np.where(self.is_putative, self.right, 0.0)[group]
        return float(confirmed.mean()) if group.any() else float("nan")


def match_records(left: np.ndarray, right: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """A record on the right for every one on the left with an equal key `(records,)`, where one is
    left, none of them twice: as many as the rarer side has of each key; -1 for none.

    A key is one integer that has all that must agree, the block among it. `seed` decides which of
    several records with one key are matched, and with which person.
    """
    draws = np.random.default_rng(seed)
    sides = []
    for keys in (left, right):
        order = np.lexsort((draws.random(len(keys)), keys))
        own = pd.DataFrame({"key": keys[order], "record": order})
        sides.append(own.assign(rank=own.groupby("key").cumcount()))
    pairs = sides[0].merge(sides[1], on=["key", "rank"])
    partner = np.full(len(left), -1)
    partner[pairs["record_x"]] = pairs["record_y"]
    return partner


def agreement(truth: np.ndarray, found: np.ndarray, *, seed: int = 0) -> float:
    """Share of the true records that agree with a rebuilt one by their keys; 0 if there are no
    records.

    With keys of block, sex, age, race and ethnicity, this is the agreement of [Reconstruction2025].
    """
    return int((match_records(truth, found, seed=seed) >= 0).sum()) / max(len(truth), 1)


def reidentify(
    known: np.ndarray,
    released: np.ndarray,
    released_feature: np.ndarray,
    truth: np.ndarray,
    *,
    seed: int = 0,
) -> Guesses:
    """Guesses of an attacker who looks up people with known keys in the records of a release.

    `known` and `released` are the keys (block, sex and age) of people and of records, `truth` the
    feature of the people attacked.
    """
    partner = match_records(known, released, seed=seed)
    has_partner, right = partner >= 0, np.zeros(len(truth))
    right[has_partner] = released_feature[partner[has_partner]] == truth[has_partner]
    return Guesses(has_partner, right)


def composition(area: np.ndarray, feature: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """People by area and feature, shape `(areas, features)`."""
    place = np.ravel_multi_index((area, feature), shape)
    return np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)


def _weights_of_mode(counts: Sequence[np.ndarray]) -> np.ndarray:
    """Weights of features as the mode of the first counts, ties by the next, else shared."""
    best = np.ones(counts[0].shape, dtype=bool)
    for level in counts:
        among = np.where(best, level, -1)
        best &= among == among.max(axis=1, keepdims=True)
    return best / best.sum(axis=1, keepdims=True)


def guess_from_blocks(
    block: np.ndarray,
    truth: np.ndarray,
    counts: Sequence[np.ndarray],
    areas: Sequence[np.ndarray],
) -> tuple[Guesses, Guesses]:
    """Guesses by the block's mode, and in proportion to its composition.

    `counts` are people by area and feature, of the blocks first, then of coarser areas (block
    groups, the nation), which break ties of the mode; `areas[k]` is the area of every block at
    level k, and so `areas[0]` counts through the blocks. The person's own record is subtracted from
    all of them (from none below 0). If the block is then empty, the next level replaces it; if all
    levels are, there is no guess.
    """
    n_features = counts[0].shape[1]
    pairs, of_pair = np.unique(block * n_features + truth, return_inverse=True)
    pair_block, pair_feature = pairs // n_features, pairs % n_features
    own = np.eye(n_features, dtype=np.int64)[pair_feature]
    levels = [
        np.maximum(np.asarray(level)[of_block[pair_block]] - own, 0)
        for level, of_block in zip(counts, areas, strict=True)
    ]
    nearest = levels[0].copy()
    for level in levels[1:]:
        empty = nearest.sum(axis=1) == 0
        nearest[empty] = level[empty]
    place = np.arange(len(pairs)), pair_feature
    totals = nearest.sum(axis=1)
    mode = _weights_of_mode([nearest, *levels[1:]])[place]
    share = nearest[place] / np.maximum(totals, 1)
    putative = (totals > 0)[of_pair]
    return (
        Guesses(putative, np.where(totals > 0, mode, 0.0)[of_pair]),
        Guesses(putative, share[of_pair]),
    )


def is_modal(
    block: np.ndarray,
    feature: np.ndarray,
    counts: Sequence[np.ndarray],
    areas: Sequence[np.ndarray],
) -> np.ndarray:
    """Whether people have the most common feature of their block, ties broken by coarser areas.

    Among features tied at every level, the first is the mode.
    """
    levels = [level[of_block] for level, of_block in zip(counts, areas, strict=True)]
    mode = _weights_of_mode(levels).argmax(axis=1)
    return mode[block] == feature


def is_unique(key: np.ndarray) -> np.ndarray:
    """Whether a person's key (block, sex and binned age) is unique."""
    _, place, counts = np.unique(key, return_inverse=True, return_counts=True)
    return counts[place] == 1


NAME = "reconstruction"


@dataclass(frozen=True)
class Rebuilt:
    """Areas as `reconstruct` leaves them, and with the likeliest people where several fit."""

    found: Reconstruction
    likely: Reconstruction


def rebuilt(release: Release) -> Rebuilt:
    """The attacked areas of a release, rebuilt from its tables."""
    lower, upper = release.bounds()
    effort, seed = Effort(seconds=release.comparison.seconds), release.comparison.seed
    found = reconstruct(release.bounded_system, lower, upper, seed=seed, effort=effort)
    return Rebuilt(found, most_likely(release, lower, upper, found, effort))


def grade_reconstruction(release: Release, pieces: Sequence[Rebuilt]) -> Iterator[Row]:
    """Figures of the attacked areas rebuilt, in successive pieces, and of who is who by that."""
    found = concatenate_reconstructions(piece.found for piece in pieces)
    people = concatenate_reconstructions(piece.likely for piece in pieces)
    level, n_kinds = release.smallest.level, release.system.n_cells
    seed = release.comparison.seed
    at, kind = release.true
    persons = np.bincount(at, minlength=found.n_blocks)
    rebuilt_at, rebuilt_kind = (
        np.repeat(part, people.count) for part in (people.block, people.cell)
    )
    key, rebuilt_key = at * n_kinds + kind, rebuilt_at * n_kinds + rebuilt_kind
    for group, least, greatest in ((ALL, 0, persons.max(initial=0)), *SIZES):
        inside = (persons >= least) & (persons <= greatest)
        if (chosen := inside & (persons > 0)).any():
            share = agreement(key[inside[at]], rebuilt_key[inside[rebuilt_at]], seed=seed)
            yield level, f"{NAME}: agreement", group, share
            status = found.status[chosen]
            for measure, wanted in (
                ("areas with one solution", BlockStatus.UNIQUE),
                ("areas undecided", BlockStatus.OPEN),
                ("areas without a solution found", BlockStatus.UNSOLVED),
                ("areas whose tables contradict each other", BlockStatus.IMPOSSIBLE),
            ):
                yield level, f"{NAME}: {measure}", group, float((status == wanted).mean())
    unique = found.status == BlockStatus.UNIQUE
    if len(at):
        yield level, f"{NAME}: people in areas with one solution", ALL, float(unique[at].mean())
        yield level, f"{NAME}: rebuilt people who can differ", ALL, *_can_differ(found)
        yield from _grade_reidentification(release, unique, rebuilt_at, rebuilt_kind)


def _can_differ(found: Reconstruction) -> tuple[float, float, float]:
    """The share of the rebuilt people in which another population that fits may differ: the proven
    value, and as bounds the found and the proven one; by the solution variability of areas.
    """
    persons = max(found.persons.sum(), 1)
    low, high = (
        float((np.minimum(variability / 100, 1) * found.persons).sum() / persons)
        for variability in found.solution_variability()
    )
    return high, low, high


def _grade_reidentification(
    release: Release, unique: np.ndarray, rebuilt_at: np.ndarray, rebuilt_kind: np.ndarray
) -> Iterator[Row]:
    known, learned = release.population.known, release.population.learned
    if known is None or learned is None:
        return
    level, (at, kind) = release.smallest.level, release.true
    known, learned = release.by_kind(known), release.by_kind(learned)
    n_known = int(known.max()) + 1
    key, feature = at * n_known + known[kind], learned[kind]
    guesses = reidentify(
        key,
        rebuilt_at * n_known + known[rebuilt_kind],
        learned[rebuilt_kind],
        feature,
        seed=release.comparison.seed,
    )
    counts, areas = _compositions(release, learned)
    modal = is_modal(at, feature, counts, areas)
    groups = {
        "all": np.ones(len(at), dtype=bool),
        "not of the area's most common kind": ~modal,
        "unique, not of the most common kind": ~modal & is_unique(key),
        "the same in areas with one solution": ~modal & is_unique(key) & unique[at],
    }
    # A guess without the release: from the composition of the area without the person.
    mode, proportional = guess_from_blocks(at, feature, counts, areas)
    for name, group in groups.items():
        has_baseline = "one solution" not in name
        for what in ("precision", "recall"):
            rate, guess = (getattr(own, what)(group) for own in (guesses, mode))
            measure = f"{NAME}: {what} of who is who"
            yield from figures(level, measure, name, rate, guess if has_baseline else None)
        yield level, f"{NAME}: people", name, float(group.sum())
        if has_baseline:
            measure = f"{NAME}: precision of a proportional guess"
            yield level, measure, name, proportional.precision(group)


def _compositions(
    release: Release, learned: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """True people by area and kind: of the attacked areas, of their parents, and of all; and the
    area of each attacked one at these levels.
    """
    people, places, n = release.population.people, release.smallest, len(release.entities)
    at, kind = release.true
    feature, n_learned = learned[release.kind_of_cell[people.cell]], int(learned.max()) + 1
    counts, areas = [composition(at, learned[kind], (n, n_learned))], [np.arange(n)]
    if places.parent_level is not None:
        entity = places.entity[people.area]
        inside = entity >= 0
        shape = (int(places.parent.max()) + 1, n_learned)
        counts.append(composition(places.parent[entity[inside]], feature[inside], shape))
        areas.append(places.parent[release.entities])
    counts.append(np.bincount(feature, minlength=n_learned)[None, :])
    areas.append(np.zeros(n, dtype=np.int64))
    return counts, areas
