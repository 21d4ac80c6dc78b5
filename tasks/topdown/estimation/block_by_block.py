"""Block by block, the baseline: every block estimated on its own, everything above a sum.

The blocks alone are measured, with the whole budget. A block has no parent whose records it must
share with others, so its estimate uses only its own noisy answers, the structural zeros
and the bounds on its group-quarters types; state totals are not held. Because counts cannot be
negative, noise on the many cells that are empty in a block adds records, and summing blocks sums
these up: this is what the TopDown Algorithm was made to avoid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from ...answers.estimates import read_estimates
from ...census.queries import incidence
from ..spine.families import Family
from ..spine.shards import Shard
from ..workload.zeros import possible_cells
from .estimate import ShardInput
from .solve_records import SolveRecord


def estimate_shard(given: ShardInput) -> tuple[SolveRecord, ...]:
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
    possible = possible_cells(given.settings, given.universe)
    for i, geocode in enumerate(given.geocode):
        type_is_possible = given.constraints.upper[i] > 0
        support = possible[type_is_possible[given.constraints.type_of_cell[possible]]]
        yield Family(geocode, i, i + 1, support, None)


def _sums_of_children(given: ShardInput, below: list[Shard]) -> sparse.csr_array:
    """Histograms `(n, n_cells)` of the shard's geounits."""
    n = len(given.geocode)
    total = sparse.csr_array((n, given.schema.n_cells), dtype=np.int64)
    for shard in below:
        level = given.spine.geolevel(shard.geolevel)
        part = slice(shard.start, shard.stop)
        path = given.run.estimates(given.universe, shard.geolevel, shard.name)
        children = read_estimates([path], level.geocode[part], given.schema.n_cells)
        parent = level.parent[part] - given.shard.start
        total = total + incidence(np.where(parent < n, parent, -1), n) @ children
    return sparse.csr_array(total)
