"""Shards: runs of parents whose children are measured and estimated by one task.

Families: parents with their children, and the parents' known counts at the time of sharding.

Estimation goes down the spine family by family. A cell that is empty in the parent is empty in
every child, so that a family's support, the cells that are not, is all that its children can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.levels import Geolevel, Spine
from ...answers.estimates import read_estimates
from ...census.census import Universe
from ...census.queries import marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.files import cache_unchanged
from ...runs.stamps import write_parquet
from ..paths import spine_folder
from ..settings import TopdownSettings
from ..workload.budget import Budget
from ..workload.implied_types import possible_cells
from .files import spine_of

ROOT = "(root)"
"""Represents the parent in the record of the root's own solve."""


@dataclass(frozen=True)
class RunUniverse:
    """A universe of a run, by its name, with its spine and what the settings say of it."""

    run: RunDirectory
    settings: TopdownSettings
    name: str

    @cached_property
    def spine(self) -> Spine:
        """The stored spine."""
        return spine_of(self.run, self.name)

    @property
    def schema(self) -> Schema:
        """The attributes of its cells."""
        return self.settings.schema_of(self.name)

    @property
    def budget(self) -> Budget:
        """Its budget."""
        return self.settings.budget_of(self.name)

    @property
    def declared(self) -> Universe:
        """The census's declaration of it."""
        return self.settings.compiled_census.universes[self.name]

    def released(self, level: Geolevel, rows: np.ndarray | None = None) -> sparse.csr_array:
        """Released counts `(n, n_cells)`; see `released_counts`."""
        return released_counts(self.run, self.name, level, self.schema.n_cells, rows)

    def area_counts(self) -> sparse.csr_array:
        """Released counts `(n_areas, n_cells)`, in the order of the geography frame."""
        found = sparse.coo_array(self.released(self.spine.geolevels[-1]))
        rows = self.spine.block_row[found.row]
        return sparse.csr_array((found.data, (rows, found.col)), shape=found.shape)


@dataclass(frozen=True)
class Family:
    """A parent and its children, geounits `start` to `stop` of the shard.

    `support` holds the cells that may be non-zero, `counts` the parent's counts in them; the root
    has no counts.
    """

    parent: str
    start: int
    stop: int
    support: np.ndarray
    counts: np.ndarray | None

    @property
    def is_settled(self) -> bool:
        """Whether the parent's counts leave the children no choice: an only child's are the same,
        and children of empty parents are empty."""
        if self.counts is None:
            return False
        return self.stop - self.start == 1 or not self.counts.any()


def families_of_shard(universe: RunUniverse, shard: Shard) -> Iterator[Family]:
    """The shard's parents in order, each with its estimate; one family without one at the root."""
    spine = universe.spine
    index = spine.names.index(shard.geolevel)
    if index == 0:
        possible = possible_cells(universe.settings, universe.name)
        yield Family(ROOT, 0, shard.stop - shard.start, possible, None)
        return
    above, rows = spine.geolevels[index - 1], np.arange(shard.parent_start, shard.parent_stop)
    estimates = universe.released(above, rows)
    parents = np.arange(shard.parent_start, shard.parent_stop + 1)
    offsets = np.searchsorted(spine.geolevels[index].parent, parents) - shard.start
    for i, name in enumerate(above.geocode[rows]):
        part = slice(estimates.indptr[i], estimates.indptr[i + 1])
        yield Family(
            name,
            int(offsets[i]),
            int(offsets[i + 1]),
            estimates.indices[part],
            estimates.data[part],
        )


def released_counts(
    run: RunDirectory, universe: str, level: Geolevel, n_cells: int, rows: np.ndarray | None = None
) -> sparse.csr_array:
    """Released counts `(n, n_cells)` of all geounits of a geolevel in its order, or of some of them
    by their positions; reads only the files of their shards.
    """
    shards, geocode = shards_by_geolevel(run, universe)[level.name], level.geocode
    if rows is not None:
        ends = np.array([shard.stop for shard in shards])
        held = np.unique(np.searchsorted(ends, rows, side="right"))
        shards, geocode = [shards[i] for i in held], geocode[rows]
    files = [run.estimates(universe, level.name, shard.name) for shard in shards]
    return read_estimates(files, geocode, n_cells)


SHARDS = "shards.parquet"

VALUES_PER_SHARD = 8_000_000
"""Noisy answers that one task holds in memory at a time: 64 MB, as long as the geolevel has no more
than `SHARDS_OF_A_GEOLEVEL` times as many."""

SHARDS_OF_A_GEOLEVEL, MOST_VALUES_PER_SHARD = 256, 32_000_000
"""Shards that the persons of a nation are to be cut into, and the answers that one may have for it,
256 MB: starting a task takes a third of a second, which small shards would not repay."""

GEOUNITS_PER_SHARD = 1 << 16
"""Geounits of a shard whose queries have few answers: of housing units, some seconds of work."""

CELLS_PER_SHARD = 1 << 27
"""Cells of a shard's geounits, of which few or many are occupied: estimating these takes ten
minutes of a core where all queries cross, and is begun anew by a resumed run."""

DEMANDED_PER_GEOUNIT = 1 << 14
"""Answers of a geounit that shards are cut for where the larger part is not drawn."""


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


def cut_spine(
    spine: Spine, schema: Schema, budget: Budget, *, on_demand: bool = False
) -> tuple[Shard, ...]:
    """Cut every geolevel between parents so that no shard much exceeds `values_per_shard` answers,
    `CELLS_PER_SHARD` cells or `GEOUNITS_PER_SHARD` geounits.

    Measured on demand, geounits have fewer answers than their queries; how many is not known yet,
    and taken to be at most `DEMANDED_PER_GEOUNIT`. Their cells do not count: they are handled
    together, as far as they are distinguished.

    The cuts are stored with the spine: measurements in one cut are never cut otherwise, and so
    never repeated.
    """
    most = GEOUNITS_PER_SHARD
    if not on_demand:
        most = max(1, min(most, CELLS_PER_SHARD // schema.n_cells))
    return tuple(
        shard
        for geolevel in spine.names
        for shard in _cut(
            spine,
            geolevel,
            most,
            min(
                sum(marginal_query(schema, name).n_rows for name in budget.query_shares[geolevel])
                or schema.n_cells,
                DEMANDED_PER_GEOUNIT if on_demand else VALUES_PER_SHARD,
            ),
        )
    )


def values_per_shard(n_values: int) -> int:
    """Most noisy answers of a shard in a geolevel that has `n_values` of them."""
    return min(max(VALUES_PER_SHARD, n_values // SHARDS_OF_A_GEOLEVEL), MOST_VALUES_PER_SHARD)


def _cut(spine: Spine, geolevel: str, most: int, values_per_geounit: int) -> tuple[Shard, ...]:
    """Cut a geolevel into shards of at most so many geounits, or of one family."""
    index = spine.names.index(geolevel)
    n = len(spine.geolevels[index])
    if index == 0:
        return (Shard(geolevel, "00000", 0, 0, 0, n),)
    offsets = spine.children(spine.names[index - 1])
    values = values_per_shard(n * values_per_geounit)
    size = max(1, min(values // values_per_geounit, most))
    wanted = np.arange(0, n, size)[1:]
    cuts = np.unique(np.concatenate([[0], np.searchsorted(offsets, wanted), [len(offsets) - 1]]))
    return tuple(
        Shard(geolevel, f"{number:05d}", int(a), int(b), int(offsets[a]), int(offsets[b]))
        for number, (a, b) in enumerate(zip(cuts[:-1], cuts[1:], strict=True))
        if offsets[b] > offsets[a]
    )


def write_shards(shards: Sequence[Shard], folder: Path) -> None:
    """Store the cuts of a spine in its folder."""
    write_parquet(folder / SHARDS, pa.Table.from_pylist([vars(shard) for shard in shards]))


@cache_unchanged(lambda folder: folder / SHARDS, at_most=4)
def read_shards(folder: Path) -> tuple[Shard, ...]:
    """The cuts of the spine stored in `folder`, root first."""
    return tuple(Shard(**row) for row in pq.read_table(folder / SHARDS).to_pylist())


def shards_of(run: RunDirectory, universe: str) -> tuple[Shard, ...]:
    """The cuts of the spine of a universe of a run, root first."""
    return read_shards(spine_folder(run, universe))


def shards_by_geolevel(run: RunDirectory, universe: str) -> dict[str, list[Shard]]:
    """The shards of a universe's spine by the geolevel that they are cut from, root first."""
    shards: dict[str, list[Shard]] = {}
    for shard in shards_of(run, universe):
        shards.setdefault(shard.geolevel, []).append(shard)
    return shards


def n_geounits(shards: Sequence[Shard]) -> int:
    """Number of a geolevel's geounits, given its shards."""
    return max((shard.stop for shard in shards), default=0)


def shard_of(run: RunDirectory, universe: str, geolevel: str, name: str) -> Shard:
    """The stored shard of this geolevel and name; StopIteration if it does not exist."""
    shards = shards_of(run, universe)
    return next(s for s in shards if (s.geolevel, s.name) == (geolevel, name))
