"""The estimators under one interface, and the steps of a run that estimate a shard by them.

Block by block, the baseline: every block estimated on its own, everything above a sum.

The blocks alone are measured, with the whole budget. A block has no parent whose records it must
share with others, so its estimate uses only its own noisy answers, the structural zeros
and the bounds on its group-quarters types; state totals are not held. Because counts cannot be
negative, noise on the many empty cells of a block adds records, and sums of blocks accumulate them:
the TopDown Algorithm was made to avoid this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ...answers.estimates import read_estimates
from ...census.queries import incidence
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created
from ...runs.steps import step
from ..paths import combined_file
from ..settings import TopdownSettings
from ..spine.files import Family, RunUniverse, Shard, shard_of
from ..workload.implied_types import possible_cells
from ..workload.sections import Estimator as EstimatorName
from . import full_information
from .estimate import ShardInput
from .kernels import wait_until_compiled
from .problem import SolveRecord


def estimate_blocks(given: ShardInput) -> tuple[SolveRecord, ...]:
    """Estimate the blocks of a shard one by one, or sum up the children of its geounits, and
    write the estimates; returns the records of the solves.
    """
    below = given.shards_below()
    if not below:
        return given.estimate(_blocks(given))
    given.write(_sums_of_children(given, below), ())
    return ()


def _blocks(given: ShardInput) -> Iterator[Family]:
    """Every block of the shard as a family of its own, without a parent's counts."""
    possible = possible_cells(given.universe.settings, given.universe.name)
    for i, geocode in enumerate(given.constraints.geocode):
        type_is_possible = given.constraints.upper[i] > 0
        support = possible[type_is_possible[given.constraints.type_of_cell[possible]]]
        yield Family(geocode, i, i + 1, support, None)


def _sums_of_children(given: ShardInput, below: list[Shard]) -> sparse.csr_array:
    """Histograms `(n, n_cells)` of the shard's geounits."""
    universe = given.universe
    n, n_cells = len(given.constraints.geocode), universe.schema.n_cells
    total = sparse.csr_array((n, n_cells), dtype=np.int64)
    for shard in below:
        level = universe.spine.geolevel(shard.geolevel)
        part = slice(shard.start, shard.stop)
        path = universe.run.estimates(universe.name, shard.geolevel, shard.name)
        children = read_estimates([path], level.geocode[part], n_cells)
        parent = level.parent[part] - given.shard.start
        total = total + incidence(np.where(parent < n, parent, -1), n) @ children
    return sparse.csr_array(total)


COMBINE, ESTIMATE = "combine", "estimate"
"""Kinds of steps at a geolevel; see `estimation_order`."""


@dataclass(frozen=True)
class Estimator:
    """How measurements become estimates.

    estimate : estimates a shard and writes the estimates; returns the records of the solves.
    is_bottom_up : whether a geolevel's shards need the estimates of the geolevel below, and not
        of the one above.
    combine : combines the measurements of a shard with its descendants', for its parents; done for
        every geolevel but the root, from the blocks up, before anything is estimated. None where
        the estimator needs no such thing.
    refuse : raises InputRefused for settings that it cannot estimate.
    """

    estimate: Callable[[ShardInput], tuple[SolveRecord, ...]]
    is_bottom_up: bool = False
    combine: Callable[[ShardInput], None] | None = None
    refuse: Callable[[TopdownSettings], None] = lambda settings: None


ESTIMATORS: Mapping[EstimatorName, Estimator] = {
    "topdown": Estimator(ShardInput.estimate),
    "block_by_block": Estimator(estimate_blocks, is_bottom_up=True),
    "full_information": Estimator(
        full_information.estimate_shard,
        combine=full_information.combine_shard,
        refuse=full_information.refuse_large_core,
    ),
}
"""By the name that `run.estimator` has in the settings."""


def estimator_of(settings: TopdownSettings) -> Estimator:
    """The estimator in the settings."""
    return ESTIMATORS[settings.run.estimator]


def estimation_order(
    settings: TopdownSettings, geolevels: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Steps of a universe's estimator, each with its geolevel, in order; geolevels are root first.

    Top down from the root or bottom up from the blocks, as the estimator needs it; where it
    combines measurements first, that is done from the blocks up before, at all but the root.
    """
    estimator, up = estimator_of(settings), tuple(geolevels)[::-1]
    combined = () if estimator.combine is None else up[:-1]
    return (
        *((COMBINE, geolevel) for geolevel in combined),
        *((ESTIMATE, geolevel) for geolevel in (up if estimator.is_bottom_up else geolevels)),
    )


@step(
    "estimate",
    TopdownSettings,
    run_name="estimate-{universe}-{geolevel}-{shard}",
    made_at=lambda run, _settings, *shard: run.estimates(*shard),
)
def estimate(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Made:
    """Estimate a shard by the estimator in the settings."""
    wait_until_compiled()
    given = _input_of(run, settings, universe, geolevel, shard)
    estimator_of(settings).estimate(given)
    return created(run.estimates(universe, geolevel, shard))


@step(
    "combine",
    TopdownSettings,
    run_name="combine-{universe}-{geolevel}-{shard}",
    made_at=lambda run, _settings, *shard: combined_file(run, *shard),
)
def combine(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Made:
    """Combine a shard's measurements with its descendants', for estimators that need it."""
    combine_shard = estimator_of(settings).combine
    if combine_shard is None:
        raise ValueError("this estimator combines no measurements")
    combine_shard(_input_of(run, settings, universe, geolevel, shard))
    return created(combined_file(run, universe, geolevel, shard))


def _input_of(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> ShardInput:
    part = shard_of(run, universe, geolevel, shard)
    return ShardInput.read(RunUniverse(run, settings, universe), part)
