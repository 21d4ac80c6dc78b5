"""The estimators under one interface: from published measurements to estimates, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spineflow.geography.levels import Spine
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.estimation import block_by_block, estimate, full_information
from spineflow.tasks.topdown.estimation.parent import SolveRecord
from spineflow.tasks.topdown.settings import Estimator as EstimatorName
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.shards import Shard


@dataclass(frozen=True)
class Estimator:
    """How measurements become estimates.

    estimate : estimates a shard and writes the estimates; returns the records of the solves.
    is_bottom_up : whether a geolevel's shards need the estimates of the geolevel below, and not
        of the one above.
    combine : combines the measurements of a shard with those below it, for its parents; done for
        every geolevel but the root, from the blocks up, before anything is estimated. None where
        the estimator needs no such thing.
    """

    estimate: Callable[[RunDirectory, TopdownSettings, str, Spine, Shard], tuple[SolveRecord, ...]]
    is_bottom_up: bool = False
    combine: Callable[[RunDirectory, TopdownSettings, str, Spine, Shard], None] | None = None


ESTIMATORS: Mapping[EstimatorName, Estimator] = {
    "topdown": Estimator(estimate.estimate_shard),
    "block_by_block": Estimator(block_by_block.estimate_shard, is_bottom_up=True),
    "full_information": Estimator(
        full_information.estimate_shard, combine=full_information.combine_shard
    ),
}
"""By the name that `run.estimator` has in the settings."""


def estimator_of(settings: TopdownSettings) -> Estimator:
    """The estimator that the settings ask for."""
    return ESTIMATORS[settings.run.estimator]
