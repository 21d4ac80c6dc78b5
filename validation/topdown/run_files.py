"""Reading a topdown run's public files, for checks that share nothing with the estimator.

Spines, estimates, constraints and measurements are read here, column by column and in batches. A
geolevel can be cut into parts, of which each is read alone; see `validation.topdown.spine_parts`.
Memory is then about a hundred bytes for each geounit of the spine, and what one part needs beside.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..run_files import (
    ROWS_PER_BATCH,
    UnusableRunFile,
    as_text,
    opened,
    parse_fraction,
    positions,
    read_table,
    shown,
)
from .cells import Cells
from .declarations import ExpectedDeclarations
from .layout import Layout

BLOCK = "Block"
STATE = "State"


@dataclass(frozen=True)
class ExpectedUniverse:
    """What the settings of a run promise about one universe's files.

    `geolevels` run from the root to Block. `total` is the whole privacy-loss parameter, None for
    a run without noise: epsilon of the discrete Laplace mechanism where `is_pure`, else rho of the
    discrete Gaussian. `query_shares[geolevel][query]` holds the measured queries (no share of 0).
    `constraints[name]` lists the geolevels at which every geounit carries the constraint (every
    state's FIPS code, for `state_total_con`), structural zeros included, and is None where releases
    are held to what is `declared` in place of the files of constraints;
    `structural_zeros[name]` gives the levels of attributes whose joint cells hold nobody.
    """

    cells: Cells
    geolevels: tuple[str, ...]
    total: Fraction | None
    query_shares: Mapping[str, Mapping[str, Fraction]]
    constraints: Mapping[str, Sequence[str]] | None
    structural_zeros: Mapping[str, Mapping[str, Sequence[int]]]
    is_pure: bool = False
    layout: Layout | None = None
    """Layout of the microdata; None where they are not checked."""
    has_digits: bool = True
    """Whether geocodes are those of the United States, digit by digit."""
    on_demand: bool = False
    """Whether only rows that can matter are measured; see `validation.topdown.demanded`."""
    declared: ExpectedDeclarations | None = None
    """What releases are held to in place of files of constraints."""

    @property
    def measurements(self) -> str:
        """Folder of a geolevel's measurements."""
        return "on_demand" if self.on_demand else "dpqueries"

    @property
    def possible(self) -> np.ndarray:
        """(n_cells,) cells that are no structural zeros."""
        possible = np.ones(self.cells.n, dtype=bool)
        for conditions in self.structural_zeros.values():
            possible &= ~self.cells.where(conditions)
        return possible


@dataclass(frozen=True)
class SpineLevel:
    """The geounits of one geolevel, numbered as `geounits.parquet` lists them.

    `parent` numbers the geounits of the level above (-1 in the root level), and
    `shares[share_code]` is each geounit's share of the privacy-loss budget. Where `is_part`, the
    geolevel has other geounits too, whose rows stand in the same files.
    """

    name: str
    geocode: pa.StringArray
    parent: np.ndarray
    shares: tuple[Fraction, ...]
    share_code: np.ndarray
    bypassed: np.ndarray
    n_blocks: np.ndarray
    is_part: bool = False

    @property
    def n(self) -> int:
        """Number of geounits."""
        return len(self.geocode)

    def part(self, geounits: np.ndarray, parent: np.ndarray) -> SpineLevel:
        """The geounits at these positions alone, in this order, with `parent` as their parents."""
        return SpineLevel(
            self.name,
            self.geocode.take(pa.array(geounits)),
            parent,
            self.shares,
            self.share_code[geounits],
            self.bypassed[geounits],
            self.n_blocks[geounits],
            is_part=True,
        )

    @cached_property
    def is_measured(self) -> np.ndarray:
        """Whether each geounit's share is above 0, shape `(n,)`."""
        return np.array([share > 0 for share in self.shares], dtype=bool)[self.share_code]

    @cached_property
    def _ascending(self) -> tuple[pa.StringArray, np.ndarray]:
        """The geocodes in their order, and the position of each."""
        order = pc.sort_indices(self.geocode)
        return self.geocode.take(order), order.to_numpy().astype(np.int64)

    def positions(self, geocode: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Position of each geocode among the geounits, -1 where it is none of theirs, as int64.

        Geocodes that are near each other are looked up among few.
        """
        values = as_text(geocode)
        if not len(values) or values.null_count == len(values):
            return np.full(len(values), -1, dtype=np.int64)
        first, stop = self._between(*pc.min_max(values).as_py().values())
        ascending, order = self._ascending
        found = positions(values, ascending[first:stop])
        place = np.full(found.size, -1, dtype=np.int64)
        place[found >= 0] = order[first:stop][found[found >= 0]]
        return place

    def has_between(self, lowest: str, highest: str) -> bool:
        """Whether the geocode of a geounit is one of these or between them."""
        first, stop = self._between(lowest, highest)
        return first < stop

    def _between(self, lowest: str, highest: str) -> tuple[int, int]:
        """Where the geocodes from one to another stand in their order."""
        ascending = self._ascending[0]
        first = bisect_left(ascending, lowest, key=str)
        return first, bisect_right(ascending, highest, lo=first, key=str)

    def describe(self, position: int) -> str:
        """The geounit in words, such as `County 44001`."""
        return f"{self.name} {self.geocode[int(position)]}"


@dataclass(frozen=True)
class RunSpine:
    """A universe's spine as its two files tell it.

    `ancestors[i][b]` is the position, among the geounits of `levels[i]`, of block b's ancestor
    according to `blocks.parquet`.
    """

    levels: tuple[SpineLevel, ...]
    block_geocode: pa.StringArray
    ancestors: tuple[np.ndarray, ...]

    @cached_property
    def by_geocode(self) -> np.ndarray:
        """Positions of the blocks in the order of their geocodes."""
        return pc.sort_indices(self.block_geocode).to_numpy()

    @cached_property
    def ascending_geocode(self) -> pa.StringArray:
        """The geocodes of the blocks in their order."""
        return self.block_geocode.take(pa.array(self.by_geocode))

    def level_index(self, name: str) -> int:
        """Number of the geolevel, 0 for the root."""
        return [level.name for level in self.levels].index(name)


def read_batches(
    folder: Path,
    columns: Sequence[str],
    *,
    as_dictionary: Sequence[str] = (),
    level: SpineLevel | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The columns of all Parquet files of a folder, in batches; none if there is no file.

    If `level` is a part of its geolevel, the rows of its geounits alone, told by the column
    geocode; row groups that have none of them are not read. Raises UnusableRunFile for a file that
    is not Parquet, lacks a column or a value of one.
    """
    among = level if level is not None and level.is_part else None
    for path in sorted(folder.glob("*.parquet")):
        with opened(path, columns, as_dictionary) as file:
            row_groups = list(range(file.num_row_groups))
            if among is not None:
                row_groups = row_groups_with(file, "geocode", among.has_between)
                if not row_groups:
                    continue
            for batch in file.iter_batches(
                batch_size=rows_per_batch,
                row_groups=row_groups,
                columns=list(columns),
                use_threads=file.metadata.num_rows > rows_per_batch,
            ):
                for name in columns:
                    if batch.column(name).null_count:
                        raise UnusableRunFile(f"a {name} in {shown(path)} is missing")
                if among is not None:
                    is_here = among.positions(batch.column("geocode")) >= 0
                    batch = batch if is_here.all() else batch.filter(pa.array(is_here))
                yield batch


def lengths_of_lists(numbers: pa.Array, other_kind: str, missing: str) -> np.ndarray:
    """Number of integers of each list, shape `(n,)`; raises UnusableRunFile, in these words, for
    what are no lists of integers and for an integer that is missing.
    """
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    is_list = any(is_kind(numbers.type) for is_kind in kinds)
    if not is_list or not pa.types.is_integer(numbers.type.value_type):
        raise UnusableRunFile(other_kind)
    if numbers.flatten().null_count:
        raise UnusableRunFile(missing)
    return pc.list_value_length(numbers).to_numpy(zero_copy_only=False).astype(np.int64)


def count_unknown(folder: Path, level: SpineLevel) -> int:
    """Rows of all Parquet files of a folder whose geocode is none of the geolevel's."""
    n_unknown = 0
    for batch in read_batches(folder, ["geocode"]):
        n_unknown += int((level.positions(batch.column("geocode")) < 0).sum())
    return n_unknown


def row_groups_with(
    file: pq.ParquetFile, name: str, may_hold: Callable[[str, str], bool]
) -> list[int]:
    """The row groups of a file that may hold what is looked for, by the lowest and the highest text
    of a column, where they tell these."""
    column, found = file.schema_arrow.names.index(name), []
    for group in range(file.num_row_groups):
        range_ = file.metadata.row_group(group).column(column).statistics
        if range_ is None or not range_.has_min_max or may_hold(range_.min, range_.max):
            found.append(group)
    return found


def read_spine(run_directory: Path, universe: str, geolevels: Sequence[str]) -> RunSpine:
    """The spine of a universe; `geolevels` run from the root to Block.

    Raises UnusableRunFile if the files do not describe a tree: other geolevels, a geocode twice in
    one geolevel, an unknown parent, a block whose ancestor is unknown, a share that is no
    fraction.
    """
    folder = run_directory / "spine" / universe
    geounits = read_table(
        folder / "geounits.parquet",
        ["geolevel", "geocode", "parent", "plb_share", "bypassed", "n_blocks"],
        as_dictionary=["geolevel", "parent", "plb_share"],
    )
    found = set(pc.unique(geounits["geolevel"]).to_pylist())
    if found != set(geolevels):
        raise UnusableRunFile(
            f"spine/{universe}/geounits.parquet has the geolevels "
            f"{', '.join(sorted(map(str, found)))} instead of {', '.join(geolevels)}"
        )
    levels: list[SpineLevel] = []
    for name in geolevels:
        rows = geounits.filter(pc.equal(geounits["geolevel"], name))
        levels.append(_spine_level(name, rows, levels[-1] if levels else None))
    del geounits, rows

    # One column at a time: the blocks' ancestors are most of what a spine's files hold.
    file = folder / "blocks.parquet"
    block_geocode = as_text(read_table(file, ["block_geocode"])["block_geocode"])
    if pc.count_distinct(block_geocode, mode="all").as_py() != len(block_geocode):
        raise UnusableRunFile(f"spine/{universe}/blocks.parquet lists a block twice")
    ancestors = []
    for level in levels:
        named = read_table(file, [level.name], as_dictionary=[level.name])[level.name]
        ancestors.append(positions(named, level.geocode).astype(np.int32))
        if (ancestors[-1] < 0).any():
            block = block_geocode[int(np.argmax(ancestors[-1] < 0))]
            raise UnusableRunFile(f"block {block} has no known ancestor at geolevel {level.name}")
    return RunSpine(tuple(levels), block_geocode, tuple(ancestors))


def count_blocks(run_directory: Path, universe: str) -> int:
    """Number of blocks of a spine; raises UnusableRunFile as `opened` does."""
    with opened(run_directory / "spine" / universe / "blocks.parquet", ["block_geocode"]) as file:
        return file.metadata.num_rows


def state_fips(spine: RunSpine) -> tuple[list[str], np.ndarray]:
    """The states' FIPS codes, and the position in that list of each State geounit's code.

    A state that is split into several geounits has one code.
    """
    fips = pc.utf8_slice_codeunits(spine.block_geocode, 0, 2).dictionary_encode()
    index = spine.level_index(STATE)
    code_of_geounit = np.zeros(spine.levels[index].n, dtype=np.int64)
    code_of_geounit[spine.ancestors[index]] = fips.indices.to_numpy()
    return fips.dictionary.to_pylist(), code_of_geounit


def _spine_level(name: str, rows: pa.Table, above: SpineLevel | None) -> SpineLevel:
    geocode = as_text(rows["geocode"])
    if geocode.null_count or len(pc.unique(geocode)) != len(geocode):
        raise UnusableRunFile(f"a geocode at geolevel {name} is missing or stands twice")
    parent = np.full(len(geocode), -1, dtype=np.int64)
    if above is not None:
        parent = positions(rows["parent"], above.geocode)
        if (parent < 0).any():
            orphan = geocode[int(np.argmax(parent < 0))]
            raise UnusableRunFile(f"{name} {orphan} has an unknown parent")
    share = as_text(rows["plb_share"]).dictionary_encode()
    if share.null_count or rows["bypassed"].null_count or rows["n_blocks"].null_count:
        raise UnusableRunFile(f"a geounit at geolevel {name} lacks a share, flag or block count")
    return SpineLevel(
        name=name,
        geocode=geocode,
        parent=parent,
        shares=tuple(parse_fraction(text) for text in share.dictionary.to_pylist()),
        share_code=share.indices.to_numpy(),
        bypassed=rows["bypassed"].to_numpy().astype(bool),
        n_blocks=rows["n_blocks"].to_numpy().astype(np.int64),
    )
