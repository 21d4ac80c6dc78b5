"""Families: parents with their children, and what is known of the parents when they are shared out.

Estimation goes down the spine family by family. A cell that is empty in the parent is empty in
every child, so that a family's support, the cells that are not, is all that its children can have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....geography.levels import Spine
from ...answers.estimates import read_estimates
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..workload.zeros import possible_cells
from .shards import Shard, shards_of

ROOT = "(root)"
"""Stands for the parent in the record of the root's own solve."""


@dataclass(frozen=True)
class Family:
    """A parent and its children, geounits `start` to `stop` of the shard.

    `support` holds the cells that may be non-zero, `counts` the parent's counts in them; the root
    has none.
    """

    parent: str
    start: int
    stop: int
    support: np.ndarray
    counts: np.ndarray | None

    @property
    def is_settled(self) -> bool:
        """Whether the parent's counts leave the children no choice: an only child's are the same,
        and where there are none, there are none."""
        if self.counts is None:
            return False
        return self.stop - self.start == 1 or not self.counts.any()


def families_of_shard(
    run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine, shard: Shard
) -> Iterator[Family]:
    """The shard's parents in order, each with its estimate; one family without one at the root."""
    index = spine.names.index(shard.geolevel)
    if index == 0:
        possible = possible_cells(settings, universe)
        yield Family(ROOT, 0, shard.stop - shard.start, possible, None)
        return
    above = spine.geolevels[index - 1]
    names = above.geocode[shard.parent_start : shard.parent_stop]
    files = estimates_above(run, universe, spine, shard)
    estimates = read_estimates(files, names, settings.schema_of(universe).n_cells)
    parents = np.arange(shard.parent_start, shard.parent_stop + 1)
    offsets = np.searchsorted(spine.geolevels[index].parent, parents) - shard.start
    for i, name in enumerate(names):
        part = slice(estimates.indptr[i], estimates.indptr[i + 1])
        yield Family(
            name,
            int(offsets[i]),
            int(offsets[i + 1]),
            estimates.indices[part],
            estimates.data[part],
        )


def estimates_above(run: RunDirectory, universe: str, spine: Spine, shard: Shard) -> list[Path]:
    """Estimate files that hold the shard's parents."""
    above = spine.names[spine.names.index(shard.geolevel) - 1]
    return [
        run.estimates(universe, above, other.name)
        for other in shards_of(run, universe)
        if other.geolevel == above
        and other.start < shard.parent_stop
        and other.stop > shard.parent_start
    ]
