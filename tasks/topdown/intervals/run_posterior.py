"""The posterior of a run's spine, from its published measurements and constraints alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from spineflow.geography.levels import Spine
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX, read_measurements
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.estimation.estimate import ShardInput
from spineflow.tasks.topdown.estimation.full_information import query_algebra
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, QueryMeasurement
from spineflow.tasks.topdown.intervals.spine_posterior import LevelInput, SpinePosterior
from spineflow.tasks.topdown.measurement.constraints import state_of
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import Shard, read_shards


@dataclass(frozen=True, eq=False)
class LevelBounds:
    """What is declared of a geolevel's geounits: lower and upper (n, T) by type, totals (n,)."""

    lower: np.ndarray
    upper: np.ndarray
    total: np.ndarray | None

    def of_answers(
        self, query: MarginalQuery, type_of_cell: np.ndarray, forbidden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds (n, n_answers) that every histogram meets, counts of 0 included:
        an answer has at least all of the types that it counts in full, and at most all of those
        that it counts at all.

        type_of_cell, forbidden : (n_cells,) type of each cell, and whether it is exactly zero.
        """
        n_types = self.lower.shape[1]
        row = query.row_of_cell[~forbidden]
        held = np.bincount(
            row * n_types + type_of_cell[~forbidden], minlength=query.n_rows * n_types
        ).reshape(query.n_rows, n_types)
        is_whole = (held == held.sum(axis=0)) & (held > 0)
        lower = self.lower @ is_whole.T.astype(np.int64)
        upper = np.minimum(self.upper, NO_BOUND) @ (held > 0).T.astype(np.int64)
        if self.total is not None:
            upper = np.minimum(upper, self.total[:, None])
            if query.n_rows == 1:
                lower = np.maximum(lower, self.total[:, None])
        return lower, np.minimum(upper, NO_BOUND)

    def summed(self, area: np.ndarray, n_areas: int) -> LevelBounds:
        """Of areas, from blocks: `area` (n,) of each, -1 for none."""
        inside = area >= 0
        sums = [np.zeros((n_areas, self.lower.shape[1]), dtype=np.int64) for _ in range(2)]
        for into, values in zip(sums, (self.lower, self.upper), strict=True):
            np.add.at(into, area[inside], np.minimum(values[inside], NO_BOUND))
        total = None
        if self.total is not None:
            total = np.bincount(area[inside], self.total[inside], n_areas).astype(np.int64)
        return LevelBounds(sums[0], np.minimum(sums[1], NO_BOUND), total)


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """A universe's spine, its posterior, and the bounds of every geolevel, root first."""

    spine: Spine
    posterior: SpinePosterior
    bounds: tuple[LevelBounds, ...]
    type_of_cell: np.ndarray
    forbidden: np.ndarray

    @classmethod
    def read(cls, run: RunDirectory, settings: TopdownSettings, universe: str) -> RunPosterior:
        """From the measurement files of a run; nothing confidential.

        Raises InputRefused for a run without measurements or without noise.
        """
        if not run.measurements(universe, "").exists():
            raise InputRefused(
                f"{run.root} has no measurements of {universe}; finish it with 'spineflow resume'."
            )
        if settings.budget_of(universe).infinite:
            raise InputRefused(
                f"The answers of {universe} in {run.root} have no noise; there is nothing to put "
                "intervals on."
            )
        spine = read_spine(spine_folder(run, universe))
        shards = read_shards(spine_folder(run, universe))
        levels, bounds = [], []
        for geolevel in spine.names:
            of_level = [shard for shard in shards if shard.geolevel == geolevel]
            given = partial(_inputs, run, settings, universe, spine, of_level)
            level, bound = _level(spine, geolevel, given)
            levels.append(level)
            bounds.append(bound)
        first = next(_inputs(run, settings, universe, spine, shards[:1]))
        algebra = query_algebra(first)
        cells = np.arange(first.schema.n_cells)
        possible = np.isin(cells, first.possible_cells())
        posterior = SpinePosterior.up(algebra, levels)
        return cls(spine, posterior, tuple(bounds), first.type_of_cell, ~possible)


def _inputs(
    run: RunDirectory,
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    shards: Sequence[Shard],
) -> Iterator[ShardInput]:
    for shard in shards:
        yield ShardInput.read(run, settings, universe, spine, shard)


def _level(
    spine: Spine, geolevel: str, given: Callable[[], Iterator[ShardInput]]
) -> tuple[LevelInput, LevelBounds]:
    """A geolevel's input, whose measurements are read shard by shard when they are asked for."""
    lower, upper, totals, states = [], [], [], []
    of_state: dict[str, int] = {}
    for shard in given():
        constraints = shard.constraints
        lower.append(constraints.lower)
        upper.append(constraints.upper)
        if constraints.total is not None:
            totals.append(constraints.total)
        if constraints.state is not None and constraints.state_total is not None:
            names = np.asarray(state_of(shard.geocode))
            states.append(names)
            of_state.update(zip(names, constraints.state_total[constraints.state], strict=True))
    bounds = LevelBounds(
        np.concatenate(lower),
        np.concatenate(upper),
        np.concatenate(totals) if totals else None,
    )
    state = state_totals = None
    if states:
        names, state = np.unique(np.concatenate(states), return_inverse=True)
        state, state_totals = state.reshape(-1), np.array([of_state[name] for name in names])

    def measured() -> Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]:
        for shard in given():
            yield shard.shard.start, shard.shard.stop, _answers(shard)

    parent = np.maximum(spine.geolevel(geolevel).parent, 0)
    can_have = bounds.upper > 0
    level = LevelInput(parent, can_have, measured, bounds.total, state, state_totals)
    return level, bounds


def _answers(given: ShardInput) -> dict[str, QueryMeasurement]:
    """A shard's answers, each weighed by the exact variance of its noise."""
    path = given.run.dpqueries(given.universe, given.shard.geolevel, given.shard.name)
    found = {}
    for name, answers in read_measurements(path, given.geocode).items():
        query = marginal_query(given.schema, name.removesuffix(DPQUERY_SUFFIX))
        found[query.name] = QueryMeasurement(query, answers.values, 1.0 / answers.variance)
    return found
