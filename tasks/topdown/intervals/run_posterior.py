"""The posterior of a run's spine, from its published measurements and constraints alone.

Estimates up and down a run's spine as a file, for the tasks that write the margins of its tables:
two files a universe, `intervals/<universe>/estimates.json` and `.bin` below the run, all of it from
public data.

Size of the estimates behind margins and intervals, predicted before they are made.

Every geounit has two matrices, the known covariances and the undetermined part, of all its core
cells by each other in every component (`estimation.query_algebra`), and its means. The last
geolevel, which has the most geounits, is in memory all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import sparse

from ....geography.levels import Spine
from ...answers.noisy import read_measurements
from ...census.queries import Coarsening, MarginalQuery, Schema
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.names import join_words
from ...runs.objects import files_of, read_object, write_object
from ..estimation.estimate import by_query
from ..estimation.full_information import measured_algebra
from ..estimation.largest_solve import gigabytes, memory_of_machine
from ..estimation.problem import NO_BOUND, QueryMeasurement
from ..estimation.query_algebra import Cube, QueryAlgebra
from ..estimation.shard_constraints import ShardConstraints, sums_of_level
from ..estimation.spine_estimates import Group, GroupedEstimates, LinearEstimates, Step
from ..settings import TopdownSettings
from ..spine.files import RunUniverse, shards_by_geolevel, spine_of
from ..workload.implied_types import structural_zeros
from .answers import LevelInput, Listener, SpinePosterior, ignore_progress
from .areas import BlockAreas


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
class RunPosterior:
    """Measurements and declarations of a universe, geolevel by geolevel, root first, and the
    estimates from them, made when they are first asked for.

    bounds : of every geolevel. type_of_cell, forbidden : (n_cells,) type of each cell, and whether
        it is exactly zero.
    mechanism : noise distribution of the measurements.
    levels : the measurements; none where estimates are stored.
    stored : estimates up the spine, and those of every geolevel down it.
    """

    spine: Spine
    algebra: QueryAlgebra
    bounds: tuple[LevelBounds, ...]
    type_of_cell: np.ndarray
    forbidden: np.ndarray
    mechanism: str
    levels: tuple[LevelInput, ...] = ()
    listener: Listener = ignore_progress
    stored: tuple[SpinePosterior, tuple[GroupedEstimates, ...]] | None = None

    @cached_property
    def posterior(self) -> SpinePosterior:
        """Estimates up the spine."""
        if self.stored is not None:
            return self.stored[0]
        return SpinePosterior.up(self.algebra, list(self.levels), self.listener)

    @cached_property
    def geolevels(self) -> tuple[GroupedEstimates, ...]:
        """Estimates of every geolevel's geounits, root first."""
        if self.stored is not None:
            return self.stored[1]
        return tuple(estimates for _, estimates in self.posterior.down())

    @property
    def blocks(self) -> GroupedEstimates:
        """Estimates of the blocks."""
        return self.geolevels[-1]

    def bounds_of(
        self, bounds: LevelBounds, counted: sparse.csr_array
    ) -> tuple[np.ndarray, np.ndarray]:
        """`LevelBounds.of_answers` of answers that count the cells of a 0/1 matrix."""
        return bounds.of_answers(counted, self.type_of_cell, self.forbidden)

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
        listener: Listener = ignore_progress,
    ) -> RunPosterior:
        """The posterior from the measurement files of a run; nothing confidential.

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
            held = [ShardConstraints(own, one, with_held=False) for one in shards]
            types = held[0].type_of_cell
            level, bound = _level(own, geolevel, held)
            levels.append(level)
            bounds.append(bound)
        return cls(
            spine,
            measured_algebra(settings, universe, types, asked),
            tuple(bounds),
            types,
            structural_zeros(settings, universe),
            settings.budget_of(universe).mechanism,
            tuple(levels),
            listener,
        )


def _level(
    universe: RunUniverse, geolevel: str, held: Sequence[ShardConstraints]
) -> tuple[LevelInput, LevelBounds]:
    """A geolevel's input, whose measurements are read shard by shard on request, weighted by the
    exact variance of their noise."""
    lower, upper, type_is_possible, total = (
        np.concatenate([getattr(part, name) for part in held])
        for name in ("lower", "upper", "type_is_possible", "total")
    )
    # Totals may be exact for some geounits of a geolevel, and are then left out: estimates that
    # use less than is known are unbiased all the same, and their errors known.
    bounds = LevelBounds(lower, upper, None if (total < 0).any() else total)
    # Constraints are not kept in memory: they are large.
    unread = [(own.shard, own.geocode) for own in held]

    def measured() -> Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]:
        for shard, geocode in unread:
            path = universe.run.dpqueries(universe.name, geolevel, shard.name)
            answers = by_query(read_measurements(path, geocode), universe.schema)
            yield (
                shard.start,
                shard.stop,
                {
                    query.name: QueryMeasurement(query, noisy.values, 1.0 / noisy.variance)
                    for query, noisy in answers
                },
            )

    parent = np.maximum(universe.spine.geolevel(geolevel).parent, 0)
    level = LevelInput(parent, type_is_possible, measured, bounds.total, sums_of_level(held))
    return level, bounds


_STORED = {
    kind.__name__: kind
    for kind in (
        *(LevelBounds, QueryAlgebra, Cube, Schema, Coarsening),
        *(GroupedEstimates, Group, LinearEstimates, Step),
    )
}


def keep_posterior(run: RunDirectory, universe: str, found: RunPosterior) -> None:
    """Write the estimates of a universe, without the measurements that they are from."""
    geolevels, up = found.geolevels, found.posterior  # The steps have their gains afterwards.
    declared = found.algebra, found.bounds, found.type_of_cell, found.forbidden, found.mechanism
    estimates = (up.root, up.steps, up.depth_of_step), geolevels
    write_object(_stem(run, universe), (declared, *estimates))


def has_posterior(run: RunDirectory, universe: str) -> bool:
    """Whether the estimates of a universe are stored."""
    return all(path.exists() for path in files_of(_stem(run, universe)))


def posterior_of(run: RunDirectory, universe: str) -> RunPosterior:
    """The stored estimates of a universe, memory-mapped."""
    declared, up, geolevels = read_object(_stem(run, universe), _STORED)
    found = RunPosterior(spine_of(run, universe), *declared)
    return replace(found, stored=(SpinePosterior(found.algebra, *up), geolevels))


def drop_posterior(run: RunDirectory, universe: str) -> None:
    """Remove the estimates of a universe when they are no longer needed."""
    for path in files_of(_stem(run, universe)):
        path.unlink(missing_ok=True)


def _stem(run: RunDirectory, universe: str) -> Path:
    return run.root / "intervals" / universe / "estimates"


MOST_NUMBERS = 1 << 28
"""Most numbers of the last geolevel's estimates for margins (2 GiB): forty times a state of a
million persons. It is the same on every machine, and so is the content of a release."""
PEAK = 3
"""Bytes in memory at once, as a multiple of the last geolevel's estimates: going up the spine, a
geounit's own estimates, its children's and their sum are needed together."""
BYTES = 8
FEW_CELLS = 32
"""Core cells up to which the number of areas, not of cells, makes estimates large."""


@dataclass(frozen=True)
class PosteriorSize:
    """The size of the estimates of a universe's last geolevel.

    geounits : their number. cells : the most core cells of one geounit. matrices : number of cells
    by cells matrices of each. told_apart : the core's attributes and their numbers of levels.
    numbers : total of all estimates.

    >>> size = PosteriorSize(257, 783, 64, {"age": 111, "education": 9}, 10**10)
    >>> size.sentence("persons")
    'the estimates of persons would take 80 GB: 64 matrices of 783 by 783 combinations of age (111 \
levels) and education (9 levels) for each of 257 areas'
    """

    geounits: int
    cells: int
    matrices: int
    told_apart: dict[str, int]
    numbers: int

    @classmethod
    def of(cls, algebra: QueryAlgebra, type_is_possible: np.ndarray) -> PosteriorSize:
        """Size for geounits that can have the types marked in `type_is_possible` (n, T)."""
        patterns, times = np.unique(type_is_possible, axis=0, return_counts=True)
        n_cells = np.array([algebra.cells_of(pattern).size for pattern in patterns], dtype=object)
        matrices = 2 * len(algebra.components)
        each = n_cells * algebra.n_coordinates + matrices * n_cells**2
        schema = algebra.schema
        told_apart = {schema.attributes[axis]: schema.shape[axis] for axis in algebra.core}
        most = int(max(n_cells, default=0))
        return cls(len(type_is_possible), most, matrices, told_apart, int(sum(times * each)))

    def sentence(self, universe: str) -> str:
        """The size in words, without a capital and a stop."""
        named = join_words([f"{name} ({n:,} levels)" for name, n in self.told_apart.items()])
        return (
            f"the estimates of {universe} would take {gigabytes(BYTES * self.numbers)}: "
            f"{self.matrices:,} matrices of {self.cells:,} by {self.cells:,} combinations"
            f"{f' of {named}' if named else ''} for each of {self.geounits:,} areas"
        )

    @property
    def peak(self) -> int:
        """Bytes in memory at once while intervals are made."""
        return PEAK * BYTES * self.numbers

    @property
    def remedy(self) -> str:
        """The change to make, without a capital and a stop."""
        if self.cells <= FEW_CELLS:
            return "take fewer areas together"
        names = join_words(list(self.told_apart))
        return (
            f"declare fewer levels of {names}, or leave out the structural zeros, bounds and "
            "queries of coarsenings that separate these levels: attributes that every query "
            "keeps whole or leaves out are in no combination"
        )


def margins_refusal(universe: str, size: PosteriorSize, together: int | None = None) -> str | None:
    """Why a universe gets no margins, and the remedy; None where it gets them.

    `together` are the numbers of all universes that are in memory at once, by default its own.
    """
    if max(size.numbers, together or 0) <= MOST_NUMBERS:
        return None
    all_of_them = ""
    if size.numbers <= MOST_NUMBERS:
        all_of_them = f", all universes together {gigabytes(BYTES * (together or 0))}"
    return (
        f"tables of {universe} have no margins: {size.sentence(universe)}{all_of_them}, and "
        f"{gigabytes(BYTES * MOST_NUMBERS)} are the most; {size.remedy}"
    )


def refuse_large_posterior(universe: str, size: PosteriorSize) -> None:
    """Raise InputRefused for intervals that this machine's memory cannot hold."""
    memory = memory_of_machine()
    if size.peak > memory:
        raise InputRefused(
            f"There can be no intervals here: {size.sentence(universe)}, several times over while "
            f"they are made, and this machine has {gigabytes(memory)}. Before the next run, "
            f"{size.remedy}; or take a machine with more memory."
        )
