"""The estimators under one interface: from published measurements to estimates, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..settings import TopdownSettings
from ..workload.sections import Estimator as EstimatorName
from . import block_by_block, full_information
from .estimate import ShardInput
from .solve_records import SolveRecord

COMBINE, ESTIMATE = "combine", "estimate"
"""What is done at a geolevel; see `estimation_order`."""


@dataclass(frozen=True)
class Estimator:
    """How measurements become estimates.

    estimate : estimates a shard and writes the estimates; returns the records of the solves.
    is_bottom_up : whether a geolevel's shards need the estimates of the geolevel below, and not
        of the one above.
    combine : combines the measurements of a shard with those below it, for its parents; done for
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
    "block_by_block": Estimator(block_by_block.estimate_shard, is_bottom_up=True),
    "full_information": Estimator(
        full_information.estimate_shard,
        combine=full_information.combine_shard,
        refuse=full_information.refuse_large_core,
    ),
}
"""By the name that `run.estimator` has in the settings."""


def estimator_of(settings: TopdownSettings) -> Estimator:
    """The estimator that the settings ask for."""
    return ESTIMATORS[settings.run.estimator]


def estimation_order(
    settings: TopdownSettings, geolevels: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """What a universe's estimator does at which geolevel, in order; geolevels are root first.

    Top down from the root or bottom up from the blocks, as the estimator needs it; where it
    combines measurements first, that is done from the blocks up before, at all but the root.
    """
    estimator, up = estimator_of(settings), tuple(geolevels)[::-1]
    combined = () if estimator.combine is None else up[:-1]
    return (
        *((COMBINE, geolevel) for geolevel in combined),
        *((ESTIMATE, geolevel) for geolevel in (up if estimator.is_bottom_up else geolevels)),
    )
