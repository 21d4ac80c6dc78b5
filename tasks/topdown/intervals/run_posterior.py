"""The posterior of a run's spine, from its published measurements and constraints alone.

Estimates up and down a run's spine as a file, for the tasks that write pieces of its margins.

Two files a universe, `intervals/<universe>/posterior.json` and `.bin` below the run. All of it
follows from public data. The bounds of the geounits are stored too, so that constraints are not
read again. The means of the steps are left out: margins need only the means of geounits from
everything. Readers get NaN for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ....geography.levels import Spine
from ...answers.noisy import read_measurements
from ...census.queries import MarginalQuery
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.objects import files_of, read_arrays, write_arrays
from ..estimation.estimate import ShardInput, by_query
from ..estimation.full_information import measured_algebra
from ..estimation.problem import NO_BOUND, QueryMeasurement
from ..estimation.query_algebra import QueryAlgebra
from ..estimation.shard_constraints import sums_of_level
from ..estimation.spine_estimates import GroupedEstimates, Step
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import RunUniverse, shards_by_geolevel
from ..workload.implied_types import structural_zeros
from .answers import LevelInput, Listener, SpinePosterior, ignore_progress
from .areas import BlockAreas
from .sizes import PosteriorSize, refuse_large_posterior


@dataclass(frozen=True, eq=False)
class LevelBounds:
    """Declared bounds of a geolevel's geounits: lower and upper (n, T) by type, totals (n,)."""

    lower: np.ndarray
    upper: np.ndarray
    total: np.ndarray | None

    def of_answers(
        self, counted: sparse.csr_array, type_of_cell: np.ndarray, forbidden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds (n, a) that every histogram meets, counts of 0 included: an answer
        has at least all of the types that it counts in full, and at most all types that it counts
        fully or in part.

        counted : (a, n_cells) 0/1 matrix, the cells of each answer.
        type_of_cell, forbidden : (n_cells,) type of each cell, and whether it is exactly zero.
        """
        n_types = self.lower.shape[1]
        of_type = (type_of_cell[:, None] == np.arange(n_types)) & ~forbidden[:, None]
        held = counted @ of_type.astype(np.int64)
        is_whole = (held == of_type.sum(axis=0)) & (held > 0)
        lower = _sum_columns(self.lower, is_whole)
        upper = _sum_columns(np.minimum(self.upper, NO_BOUND), held > 0)
        if self.total is not None:
            upper = np.minimum(upper, self.total[:, None])
            is_everyone = held.sum(axis=1) == of_type.sum()
            lower = np.where(is_everyone, np.maximum(lower, self.total[:, None]), lower)
        return lower, np.minimum(upper, NO_BOUND)

    def part(self, rows: np.ndarray) -> LevelBounds:
        """The bounds of some geounits."""
        total = None if self.total is None else self.total[rows]
        return LevelBounds(self.lower[rows], self.upper[rows], total)

    def summed(self, areas: BlockAreas) -> LevelBounds:
        """Bounds of areas, summed over their blocks."""
        lower, upper = (areas.sums(np.minimum(ends, NO_BOUND)) for ends in (self.lower, self.upper))
        total = None if self.total is None else areas.sums(self.total.astype(np.int64))
        return LevelBounds(lower, np.minimum(upper, NO_BOUND), total)


def _sum_columns(numbers: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Sums (n, a) of the columns of whole numbers (n, T) that rows of (a, T) choose: in doubles,
    which hold them as they are and are multiplied ten times as fast."""
    return (numbers.astype(np.float64) @ chosen.T.astype(np.float64)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RunLevels:
    """Measurements and declarations of a universe, geolevel by geolevel, root first.

    type_of_cell, forbidden : (n_cells,) type of each cell, and whether it is exactly zero.
    mechanism : noise distribution of the measurements.
    """

    spine: Spine
    algebra: QueryAlgebra
    levels: tuple[LevelInput, ...]
    bounds: tuple[LevelBounds, ...]
    type_of_cell: np.ndarray
    forbidden: np.ndarray
    mechanism: str

    @property
    def size(self) -> PosteriorSize:
        """The size of the last geolevel's estimates."""
        return PosteriorSize.of(self.algebra, self.levels[-1].type_is_possible)

    @classmethod
    def read(
        cls,
        run: RunDirectory,
        settings: TopdownSettings,
        universe: str,
        asked: Sequence[MarginalQuery] | None = None,
    ) -> RunLevels:
        """Levels from the measurement files of a run; nothing confidential.

        Information used only by answers other than the queries `asked` is left out; any may be
        asked for without them.

        Raises InputRefused for a run without measurements or without noise.
        """
        if not (run.root / "measurements" / universe).exists():
            raise InputRefused(
                f"{run.root} has no measurements of {universe}; finish it with 'spineflow resume'."
            )
        if settings.is_on_demand(universe):
            raise InputRefused(
                f"{run.root} measured {universe} on demand; intervals need every measurement."
            )
        if settings.budget_of(universe).infinite:
            raise InputRefused(
                f"The answers of {universe} in {run.root} have no noise; there is nothing to put "
                "intervals on."
            )
        own = RunUniverse(run, settings, universe)
        spine = own.spine
        levels, bounds = [], []
        for geolevel, shards in shards_by_geolevel(run, universe).items():
            # The answers are read later, with their exact variances.
            given = [ShardInput.read(own, one, measured={}, with_held=False) for one in shards]
            types = given[0].constraints.type_of_cell
            level, bound = _level(spine, geolevel, given)
            levels.append(level)
            bounds.append(bound)
        return cls.of_bounds(settings, universe, spine, tuple(bounds), types, tuple(levels), asked)

    @classmethod
    def of_bounds(
        cls,
        settings: TopdownSettings,
        universe: str,
        spine: Spine,
        bounds: tuple[LevelBounds, ...],
        type_of_cell: np.ndarray,
        levels: tuple[LevelInput, ...] = (),
        asked: Sequence[MarginalQuery] | None = None,
    ) -> RunLevels:
        """A universe whose bounds are known, without levels where measurements are no longer
        needed."""
        return cls(
            spine,
            measured_algebra(settings, universe, type_of_cell, asked),
            levels,
            bounds,
            type_of_cell,
            structural_zeros(settings, universe),
            settings.budget_of(universe).mechanism,
        )


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """A universe's spine with its bounds, and the estimates up it; `given` are the estimates of
    every geolevel down it, if they are there already."""

    of_run: RunLevels
    posterior: SpinePosterior
    given: tuple[GroupedEstimates, ...] | None = None

    @classmethod
    def read(
        cls,
        run: RunDirectory,
        settings: TopdownSettings,
        universe: str,
        asked: Sequence[MarginalQuery] | None = None,
        listener: Listener = ignore_progress,
    ) -> RunPosterior:
        """The posterior from the measurement files of a run; see `RunLevels.read`.

        Raises InputRefused, before any answer is read, where estimates would not fit in memory.
        """
        levels = RunLevels.read(run, settings, universe, asked)
        size = levels.size
        refuse_large_posterior(universe, size)
        listener(f"combining the measurements of {universe}: {size.work}", 0, 0)
        return cls.of(levels, listener)

    @classmethod
    def of(cls, levels: RunLevels, listener: Listener = ignore_progress) -> RunPosterior:
        """The posterior from measurements and declarations."""
        return cls(levels, SpinePosterior.up(levels.algebra, list(levels.levels), listener))

    @property
    def spine(self) -> Spine:
        """The universe's spine."""
        return self.of_run.spine

    @property
    def bounds(self) -> tuple[LevelBounds, ...]:
        """Bounds of every geolevel, root first."""
        return self.of_run.bounds

    @cached_property
    def geolevels(self) -> tuple[GroupedEstimates, ...]:
        """Estimates of every geolevel's geounits, root first."""
        if self.given is not None:
            return self.given
        return tuple(estimates for _, estimates in self.posterior.down())

    @property
    def blocks(self) -> GroupedEstimates:
        """Estimates of the blocks."""
        return self.geolevels[-1]

    def bounds_of(
        self, bounds: LevelBounds, counted: sparse.csr_array
    ) -> tuple[np.ndarray, np.ndarray]:
        """`LevelBounds.of_answers` of answers that count the cells of a 0/1 matrix."""
        return bounds.of_answers(counted, self.of_run.type_of_cell, self.of_run.forbidden)


def _level(
    spine: Spine, geolevel: str, given: Sequence[ShardInput]
) -> tuple[LevelInput, LevelBounds]:
    """A geolevel's input, whose measurements are read shard by shard on request, weighted by the
    exact variance of their noise."""
    held = [shard.constraints for shard in given]
    lower, upper, type_is_possible, total = (
        np.concatenate([getattr(part, name) for part in held])
        for name in ("lower", "upper", "type_is_possible", "total")
    )
    # Totals may be exact for some geounits of a geolevel, and are then left out: estimates that
    # use less than is known are unbiased all the same, and their errors known.
    bounds = LevelBounds(lower, upper, None if (total < 0).any() else total)
    # Shards are not kept in memory: their constraints are large.
    first, unread = given[0], [(own.shard, own.geocode) for own in given]
    run, universe, schema = first.universe.run, first.universe.name, first.universe.schema

    def measured() -> Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]:
        for shard, geocode in unread:
            path = run.dpqueries(universe, geolevel, shard.name)
            answers = by_query(read_measurements(path, geocode), schema)
            yield (
                shard.start,
                shard.stop,
                {
                    query.name: QueryMeasurement(query, noisy.values, 1.0 / noisy.variance)
                    for query, noisy in answers
                },
            )

    parent = np.maximum(spine.geolevel(geolevel).parent, 0)
    level = LevelInput(parent, type_is_possible, measured, bounds.total, sums_of_level(held))
    return level, bounds


FORMAT = 4
"""Version of the stored format; files in another version are made again."""
_STEPS = ("variance", "diffuse")


def keep_posterior(run: RunDirectory, universe: str, found: RunPosterior) -> Path:
    """Write the estimates of a universe; returns the file that is written last."""
    posterior = found.posterior
    facts = {
        "format": FORMAT,
        "root": posterior.root.to_arrays(_STEPS),
        "steps": [
            {
                "parts": step.parts.to_arrays(_STEPS),
                "whole": step.whole,
                "sums": step.sums.to_arrays(_STEPS),
                "gains": step.gains,
            }
            for step in posterior.steps
        ],
        "depths": posterior.depth_of_step,
        "geolevels": [level.to_arrays() for level in found.geolevels],
        "bounds": [(bound.lower, bound.upper, bound.total) for bound in found.bounds],
        "type_of_cell": found.of_run.type_of_cell,
    }
    return write_arrays(_stem(run, universe), facts)


def has_posterior(run: RunDirectory, universe: str) -> bool:
    """Whether the estimates of a universe are stored in the present format."""
    description, content = files_of(_stem(run, universe))
    if not (description.exists() and content.exists()):
        return False
    try:
        return bool(json.loads(description.read_bytes())["format"] == FORMAT)
    except (ValueError, KeyError):
        return False


def posterior_of(run: RunDirectory, settings: TopdownSettings, universe: str) -> RunPosterior:
    """The stored estimates of a universe, memory-mapped."""
    facts = read_arrays(_stem(run, universe))
    bounds = tuple(LevelBounds(*of) for of in facts["bounds"])
    spine = spine_of(run, universe)
    levels = RunLevels.of_bounds(settings, universe, spine, bounds, facts["type_of_cell"])
    algebra = levels.algebra

    estimates = partial(GroupedEstimates.of_arrays, algebra)

    def step(of: Mapping[str, Any]) -> Step:
        gains = tuple((along, along_diffuse) for along, along_diffuse in of["gains"])
        return Step(estimates(of["parts"]), of["whole"], estimates(of["sums"]), gains)

    steps = tuple(map(step, facts["steps"]))
    up = SpinePosterior(algebra, estimates(facts["root"]), steps, tuple(facts["depths"]))
    return RunPosterior(levels, up, tuple(map(estimates, facts["geolevels"])))


def drop_posterior(run: RunDirectory, universe: str) -> None:
    """Remove the estimates of a universe when they are no longer needed."""
    for path in files_of(_stem(run, universe)):
        path.unlink(missing_ok=True)


def _stem(run: RunDirectory, universe: str) -> Path:
    return run.root / "intervals" / universe / "posterior"
