"""Spines as Parquet, one row a geounit and one a block, and once more as arrays that are mapped.

`geounits.parquet` and `blocks.parquet` are the spine. `spine.arrow` has the same as it is used, so
that all workers of a machine share its pages and a shard's task touches only its own geounits: an
uncompressed Arrow file with a record batch for each geolevel, whose metadata names the digests of
the other two. It alone is read, while it agrees with them.

`geounits`: geolevel, geocode, parent, plb_share ("p/q"), is_aian, bypassed, n_blocks; one row per
geounit, root first; the root's parent is the empty text, and the schema's metadata holds the kind
of spine under "spine". `blocks`: block_geocode and a column of geocodes for each geolevel.

Shards: runs of parents whose children are measured and estimated by one task.

Families: parents with their children, and the parents' known counts at the time of sharding.

Estimation goes down the spine family by family. A cell that is empty in the parent is empty in
every child, so that a family's support, the cells that are not, is all that its children can have.

Subspines: the states of a spine in groups, by which workers share the work on a large run.

No entity of a summary level extends over two states, and no geounit below the state does. States
are public, and so are their numbers of blocks.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.levels import Geolevel, Spine
from ....geography.texts import texts_of
from ...answers.estimates import read_estimates
from ...census.census import Universe
from ...census.queries import Schema, marginal_query
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import cache_unchanged, digest_of, replacing
from ...runs.stamps import write_parquet
from ..paths import geography_file, spine_folder
from ..settings import TopdownSettings
from ..workload.budget import Budget
from ..workload.implied_types import possible_cells

GEOUNITS = "geounits.parquet"
BLOCKS = "blocks.parquet"
ARRAYS = "spine.arrow"

_SCHEMA = pa.schema(
    {
        "geocode": pa.string(),
        "parent": pa.int64(),
        "plb_share_code": pa.int32(),
        "is_aian": pa.uint8(),
        "bypassed": pa.uint8(),
        "n_blocks": pa.int64(),
        "block_geocode": pa.string(),
        "block_row": pa.int64(),
    }
)
"""Columns of a geolevel; the last two have values at the last geolevel alone."""

_KEY = b"spine"


def write_spine(spine: Spine, folder: Path) -> None:
    """Write `geounits.parquet` and `blocks.parquet`, and then `spine.arrow`."""
    geounits: list[pa.Table] = []
    blocks = {"block_geocode": pa.array(spine.block_geocode, pa.string())}
    above = pa.array([""])
    for level in spine.geolevels:
        geocode = pa.array(level.geocode, pa.string())
        share_text = pa.array([str(share) for share in level.plb_shares])
        columns = {
            "geolevel": pa.repeat(level.name, len(level)),
            "geocode": geocode,
            "parent": above.take(pa.array(np.maximum(level.parent, 0))),
            "plb_share": share_text.take(pa.array(level.plb_share_code)),
            "is_aian": pa.array(level.is_aian),
            "bypassed": pa.array(level.bypassed),
            "n_blocks": pa.array(level.n_blocks, pa.int64()),
        }
        geounits.append(pa.table(columns))
        blocks[level.name] = geocode.take(pa.array(spine.ancestors(level.name)))
        above = geocode
    described = pa.concat_tables(geounits).replace_schema_metadata({"spine": spine.kind})
    write_parquet(folder / GEOUNITS, described)
    write_parquet(folder / BLOCKS, pa.table(blocks))
    _write_arrays(spine, folder)


def _files_of_spine(folder: Path) -> list[Path]:
    paths = [folder / name for name in (ARRAYS, GEOUNITS, BLOCKS)]
    for path in paths:
        if not path.exists():
            raise InputRefused(f"{path} is missing; put it back, or read the run with version 0.3.")
    return paths


@cache_unchanged(_files_of_spine, at_most=4)
def read_spine(folder: Path) -> Spine:
    """The spine stored by `write_spine`, mapped and read-only.

    Raises InputRefused where a file is missing, or `spine.arrow` is of other Parquet files.
    """
    with pa.memory_map(str(folder / ARRAYS)) as source:
        file = pa.ipc.open_file(source)
        facts = json.loads(file.schema.metadata[_KEY])
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    if facts["of"] != _digests(folder):
        raise InputRefused(
            f"{folder / GEOUNITS} or {BLOCKS} is not the file that {ARRAYS} was made with; put it "
            "back, or start a new run."
        )
    geolevels = []
    for entry, batch in zip(facts["geolevels"], batches, strict=True):
        parent, code, is_aian, n_blocks = (
            batch[name].to_numpy() for name in ("parent", "plb_share_code", "is_aian", "n_blocks")
        )
        shares, geocode = tuple(map(Fraction, entry["shares"])), texts_of(batch["geocode"])
        geolevels.append(
            Geolevel(entry["name"], geocode, parent, shares, code, is_aian.view(bool), n_blocks)
        )
    blocks = batches[-1]
    rows = blocks["block_row"].to_numpy()
    return Spine(facts["kind"], tuple(geolevels), texts_of(blocks["block_geocode"]), rows)


def spine_of(run: RunDirectory, universe: str) -> Spine:
    """The spine of a universe of a run; see `read_spine`."""
    return read_spine(spine_folder(run, universe))


def _write_arrays(spine: Spine, folder: Path) -> None:
    facts = {
        "kind": spine.kind,
        "geolevels": [
            {"name": level.name, "shares": [str(share) for share in level.plb_shares]}
            for level in spine.geolevels
        ],
        "of": _digests(folder),
    }
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(facts)})
    with replacing(folder / ARRAYS) as part, pa.ipc.new_file(str(part), schema) as writer:
        for level in spine.geolevels:
            is_last = level is spine.geolevels[-1]
            n = len(level)
            columns = [
                pa.array(level.geocode, pa.string()),
                pa.array(level.parent, pa.int64()),
                pa.array(level.plb_share_code, pa.int32()),
                pa.array(np.asarray(level.is_aian, dtype=bool).view(np.uint8)),
                pa.array(np.asarray(level.bypassed, dtype=bool).view(np.uint8)),
                pa.array(level.n_blocks, pa.int64()),
                pa.array(spine.block_geocode, pa.string()) if is_last else pa.repeat("", n),
                pa.array(spine.block_row if is_last else np.full(n, -1), pa.int64()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _digests(folder: Path) -> dict[str, str]:
    return {name: digest_of(folder / name) for name in (GEOUNITS, BLOCKS)}


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


def shard_of(run: RunDirectory, universe: str, geolevel: str, name: str) -> Shard:
    """The stored shard of this geolevel and name; StopIteration if it does not exist."""
    shards = shards_of(run, universe)
    return next(s for s in shards if (s.geolevel, s.name) == (geolevel, name))


BLOCKS_PER_SUBSPINE = 1 << 13
"""Blocks of a spine from which it is cut into subspines, and of each of them, except for larger
states: some tenths of a second of most kinds of work."""

BLOCKS_PER_TASK = 1 << 13

STATE = "State"


@dataclass(frozen=True, eq=False)
class Subspine:
    """Some states of a spine as a spine of their own, and the positions of its geounits in the
    whole one: `(n,)` for each geolevel."""

    spine: Spine
    positions: tuple[np.ndarray, ...]

    @classmethod
    def whole(cls, spine: Spine) -> Subspine:
        """The whole spine as its own subspine."""
        return cls(spine, tuple(np.arange(len(level)) for level in spine.geolevels))

    @property
    def blocks(self) -> np.ndarray:
        """Positions of its blocks."""
        return self.positions[-1]


def state_codes(state_geocode: np.ndarray) -> np.ndarray:
    """FIPS codes of geounits of the State geolevel: the last two digits on every spine. A state can
    have two."""
    return np.array([code[-2:] for code in state_geocode], dtype=object)


def first_states(spine: Spine) -> tuple[str, ...]:
    """Code of the first state of each subspine, ascending; the first one is empty. A spine has one
    subspine if it is small, or has no states below its root."""
    if spine.n_blocks <= BLOCKS_PER_SUBSPINE or spine.names[1:2] != (STATE,):
        return ("",)
    level = spine.geolevel(STATE)
    codes, state = np.unique(state_codes(level.geocode), return_inverse=True)
    n_blocks = np.bincount(state, level.n_blocks)
    middle = np.cumsum(n_blocks) - n_blocks / 2
    _, first = np.unique(middle // BLOCKS_PER_SUBSPINE, return_index=True)
    return ("", *codes[first[1:]])


def n_subspines(spine: Spine) -> int:
    """Number of subspines of a spine."""
    return len(first_states(spine))


def n_pieces(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Number of pieces of the work on a universe's areas, each a subspine: one where entities may
    extend over several states, unlike those of summary levels."""
    has_levels = settings.compiled_census.declared.summary_levels
    return n_subspines(spine_of(run, universe)) if has_levels else 1


def n_tasks(run: RunDirectory) -> int:
    """Number of tasks that share the work of a stage on a run's areas, by their public number;
    what is done for every task alike takes a tenth of a second."""
    return -(-pq.read_metadata(geography_file(run)).num_rows // BLOCKS_PER_TASK)


def subspine_of(spine: Spine, number: int) -> Subspine:
    """One of the subspines of a spine, from 0; the whole if it is the only one."""
    starts = np.array(first_states(spine), dtype=object)
    if len(starts) == 1:
        return Subspine.whole(spine)
    codes = state_codes(spine.geolevel(STATE).geocode)
    subspine = np.searchsorted(starts, codes, side="right") - 1
    return _part(spine, np.flatnonzero(subspine == number))


def states_of_subspine(spine: Spine, number: int, states: Sequence[str]) -> list[str]:
    """The states of a subspine, among the given codes of all; a state that is not on the spine
    belongs to the subspine of the state before."""
    starts = first_states(spine)
    return [state for state in states if bisect_right(starts, state) == number + 1]


def read_areas(file: Path, spine: Spine, number: int) -> pd.DataFrame:
    """Rows of a file of areas that are a subspine's states'; see `states_of_subspine`."""
    starts = (*first_states(spine), ":")  # A colon follows the digits.
    return read_codes(file, *starts[number : number + 2])


def read_codes(file: Path, first: str, after: str) -> pd.DataFrame:
    """Rows of a file of areas whose codes are from `first` on and before `after`."""
    chosen = [("block_geocode", ">=", first), ("block_geocode", "<", after)]
    return pq.read_table(file, filters=chosen).to_pandas()


def blocks_of_state(spine: Spine, fips: str) -> np.ndarray:
    """Positions of the blocks of a state, ascending."""
    if STATE not in spine.names:
        codes = pa.array(spine.block_geocode, pa.string())
        return np.flatnonzero(pc.starts_with(codes, fips))
    states = np.flatnonzero(state_codes(spine.geolevel(STATE).geocode) == fips)
    below = (spine.blocks_below(STATE, state, state + 1) for state in states.tolist())
    return np.concatenate([np.arange(0), *(np.arange(one.start, one.stop) for one in below)])


def _part(spine: Spine, states: np.ndarray) -> Subspine:
    """The part of a spine below some State geounits, given by their ascending positions."""
    positions = [np.zeros(1, dtype=np.int64), states]
    levels = [spine.geolevels[0]]
    for depth, level in enumerate(spine.geolevels[1:], 1):
        above = positions[depth - 1]
        if depth > 1:
            is_kept = np.zeros(len(spine.geolevels[depth - 1]), dtype=bool)
            is_kept[above] = True
            positions.append(np.flatnonzero(is_kept[level.parent]))
        names = ("geocode", "plb_share_code", "is_aian", "n_blocks")
        taken = {name: getattr(level, name)[positions[depth]] for name in names}
        parent = np.searchsorted(above, level.parent[positions[depth]])
        levels.append(replace(level, parent=parent, **taken))
    blocks = positions[-1]
    part = Spine(spine.kind, tuple(levels), spine.block_geocode[blocks], spine.block_row[blocks])
    return Subspine(part, tuple(positions))
