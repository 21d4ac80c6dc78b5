"""Shards: runs of parents whose children are measured and estimated by one task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geography.levels import Spine
from tasks.workload.budget import Budget
from tasks.workload.queries import marginal_query
from tasks.workload.schema import Schema

VALUES_PER_SHARD = 8_000_000
"""Noisy answers that one task holds in memory at a time: 64 MB."""


@dataclass(frozen=True)
class Shard:
    """Geounits `start` to `stop` of a geolevel: all children of the parents in between.

    The shard of the root has no parents: both parent positions are 0.
    """

    geolevel: str
    name: str
    parent_start: int
    parent_stop: int
    start: int
    stop: int


def shards_of(spine: Spine, geolevel: str, schema: Schema, budget: Budget) -> tuple[Shard, ...]:
    """Cut a geolevel between parents so that no shard much exceeds `VALUES_PER_SHARD`.

    A function of the spine and the workload alone, so that every task and every resumed run cuts
    alike.
    """
    values_per_geounit = sum(
        marginal_query(schema, name).n_rows for name in budget.query_shares[geolevel]
    )
    index = spine.names.index(geolevel)
    n = len(spine.geolevels[index])
    if index == 0:
        return (Shard(geolevel, "00000", 0, 0, 0, n),)
    offsets = spine.children(spine.names[index - 1])
    size = max(1, VALUES_PER_SHARD // values_per_geounit)
    wanted = np.arange(0, n, size)[1:]
    cuts = np.unique(np.concatenate([[0], np.searchsorted(offsets, wanted), [len(offsets) - 1]]))
    return tuple(
        Shard(geolevel, f"{number:05d}", int(a), int(b), int(offsets[a]), int(offsets[b]))
        for number, (a, b) in enumerate(zip(cuts[:-1], cuts[1:], strict=True))
        if offsets[b] > offsets[a]
    )


def shard_named(spine: Spine, geolevel: str, name: str, schema: Schema, budget: Budget) -> Shard:
    """The shard of this name; StopIteration if there is none."""
    return next(s for s in shards_of(spine, geolevel, schema, budget) if s.name == name)
