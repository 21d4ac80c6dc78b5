"""The spine of a universe: read from its two files, checked to be one tree, cut into parts.

Memory is about a hundred bytes for each geounit. A large spine is checked in parts, one after the
other or concurrently: the first has the geolevels from the root down to the cut, and every other
some geounits of the cut and all those below them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import (
    UnusableRunFile,
    open_parquet,
    parse_fraction,
    positions,
    read_table,
    to_text,
)

STATE = "State"
BLOCKS_PER_PART = 1 << 14


@dataclass(frozen=True)
class SpineLevel:
    """The geounits of one geolevel, numbered as `geounits.parquet` lists them.

    `parent` numbers the geounits of the level above (-1 in the root level), and
    `shares[share_code]` is each geounit's share of the privacy-loss budget. Where `is_part`, the
    geolevel has other geounits too, whose rows are in the same files.
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
        return replace(
            self,
            geocode=self.geocode.take(pa.array(geounits)),
            parent=parent,
            share_code=self.share_code[geounits],
            bypassed=self.bypassed[geounits],
            n_blocks=self.n_blocks[geounits],
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
        """Position of each geocode among the geounits, -1 for other geocodes, as int64.

        Geocodes that are near each other are looked up among few.
        """
        values = to_text(geocode)
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
        """Positions of the geocodes from one to another in their order."""
        ascending = self._ascending[0]
        first = bisect_left(ascending, lowest, key=str)
        return first, bisect_right(ascending, highest, lo=first, key=str)

    def describe(self, position: int) -> str:
        """The geounit in words, such as `County 44001`."""
        return f"{self.name} {self.geocode[int(position)]}"


@dataclass(frozen=True)
class RunSpine:
    """A universe's spine as in its two files; areas, its blocks, ascend by `area_geocode`.

    `ancestors[i][a]` is the position, among the geounits of `levels[i]`, of area a's ancestor.
    """

    levels: tuple[SpineLevel, ...]
    area_geocode: pa.StringArray
    ancestors: tuple[np.ndarray, ...]

    @property
    def n_areas(self) -> int:
        """Number of areas."""
        return len(self.area_geocode)

    def leaves(self, areas: slice | np.ndarray) -> SpineLevel:
        """The geounits of the last geolevel that are these areas, in their order."""
        geounits = self.ancestors[-1][areas]
        return self.levels[-1].part(geounits, np.full(geounits.size, -1))


@dataclass(frozen=True)
class SpinePart:
    """Geounits of successive geolevels, and the areas below them.

    `depth` is the number of the first geolevel, `geounits[i]` the ascending positions of the
    geounits of `levels[i]` in the spine's own level. Unless `depth` is 0, the first level is the
    cut: its geounits are in the first part too, and here as parents alone.
    """

    depth: int
    levels: tuple[SpineLevel, ...]
    geounits: tuple[np.ndarray, ...]
    areas: np.ndarray

    def geounit_of_area(self, spine: RunSpine, i: int) -> np.ndarray:
        """Position among `levels[i]` of the ancestor of each of the areas."""
        return np.searchsorted(self.geounits[i], spine.ancestors[self.depth + i][self.areas])


def read_spine(root: Path, universe: str, geolevels: Sequence[str]) -> RunSpine:
    """The spine of a universe; `geolevels` run from the root down.

    Raises UnusableRunFile if the files do not describe a tree: other geolevels, a geocode twice in
    one geolevel, an unknown parent, a block whose ancestor is unknown, a share that is no
    fraction.
    """
    folder = root / "spine" / universe
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

    # One column at a time: the blocks' ancestors are the bulk of a spine's files.
    file = folder / "blocks.parquet"
    geocode = to_text(read_table(file, ["block_geocode"])["block_geocode"])
    if pc.count_distinct(geocode, mode="all").as_py() != len(geocode):
        raise UnusableRunFile(f"spine/{universe}/blocks.parquet lists a block twice")
    order = pc.sort_indices(geocode)
    ancestors = []
    for level in levels:
        named = read_table(file, [level.name], as_dictionary=[level.name])[level.name]
        ancestors.append(positions(named, level.geocode).astype(np.int32)[order.to_numpy()])
        if (ancestors[-1] < 0).any():
            block = geocode[order[int(np.argmax(ancestors[-1] < 0))].as_py()]
            raise UnusableRunFile(f"block {block} has no known ancestor at geolevel {level.name}")
    return RunSpine(tuple(levels), geocode.take(order), tuple(ancestors))


def count_blocks(root: Path, universe: str) -> int:
    """Number of blocks of a spine; raises UnusableRunFile as `open_parquet` does."""
    with open_parquet(root / "spine" / universe / "blocks.parquet", ["block_geocode"]) as file:
        return file.metadata.num_rows


def _spine_level(name: str, rows: pa.Table, above: SpineLevel | None) -> SpineLevel:
    geocode = to_text(rows["geocode"])
    if geocode.null_count or len(pc.unique(geocode)) != len(geocode):
        raise UnusableRunFile(f"a geocode at geolevel {name} is missing or appears twice")
    parent = np.full(len(geocode), -1, dtype=np.int64)
    if above is not None:
        parent = positions(rows["parent"], above.geocode)
        if (parent < 0).any():
            orphan = geocode[int(np.argmax(parent < 0))]
            raise UnusableRunFile(f"{name} {orphan} has an unknown parent")
    share = to_text(rows["plb_share"]).dictionary_encode()
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


def check_spine(spine: RunSpine, failures: Failures, *, with_digits: bool = True) -> None:
    """The two spine files agree: one tree, whose leaves are the blocks.

    Each block's ancestors are each other's parents, every leaf is one block and ends with its
    geocode, `n_blocks` counts the blocks below, geocodes below the root's children start with their
    parent's, the root level has one geounit, a geounit is marked as bypassed exactly if its share
    is 0, and a State geounit lies in one state. Unless `with_digits`, geocodes are not those of the
    United States, and their digits are not checked.
    """
    root, leaves = spine.levels[0], spine.levels[-1]
    if root.n != 1:
        failures.add(f"the root geolevel {root.name} has {root.n} geounits")
    failures.add_each(
        np.bincount(spine.ancestors[-1], minlength=leaves.n) != 1,
        lambda i: f"{leaves.describe(i)} is not one area of its own",
    )
    for level, ancestor in zip(spine.levels, spine.ancestors, strict=True):
        failures.add_each(
            np.bincount(ancestor, minlength=level.n) != level.n_blocks,
            f"n_blocks at {level.name} is not the number of areas of a geounit",
        )
        failures.add_each(
            level.bypassed == level.is_measured,
            f"a geounit at {level.name} is marked against its share",
        )
    for i, level in enumerate(spine.levels[1:], 1):
        failures.add_each(
            level.parent[spine.ancestors[i]] != spine.ancestors[i - 1],
            f"a block has a {level.name} whose parent is not its own",
        )
        if i > 1:
            starts = _have_prefix(level.geocode, spine.levels[i - 1].geocode.take(level.parent))
            failures.add_each(
                ~starts, f"a geounit at {level.name} does not start with its parent's geocode"
            )
    if with_digits:
        ends = pc.utf8_slice_codeunits(leaves.geocode.take(spine.ancestors[-1]), start=-16)
        failures.add_each(
            pc.not_equal(ends, spine.area_geocode),
            lambda a: f"block {spine.area_geocode[a]} has a Block geounit of another geocode",
        )
        for level, ancestor in zip(spine.levels, spine.ancestors, strict=True):
            if level.name == STATE:
                fips = pc.utf8_slice_codeunits(level.geocode.take(ancestor), start=-2)
                failures.add_each(
                    pc.not_equal(fips, pc.utf8_slice_codeunits(spine.area_geocode, 0, 2)),
                    lambda a: f"block {spine.area_geocode[a]} has a State of another state",
                )


def _have_prefix(geocode: pa.StringArray, start: pa.StringArray) -> np.ndarray:
    length = pc.utf8_length(start).to_numpy(zero_copy_only=False)
    found = np.zeros(len(geocode), dtype=bool)
    for digits in np.unique(length):
        equal = pc.equal(pc.utf8_slice_codeunits(geocode, 0, int(digits)), start)
        found |= (length == digits) & equal.to_numpy(zero_copy_only=False)
    return found


def check_shares(spine: RunSpine, failures: Failures) -> None:
    """Along every path from the root to a block, the geounits' shares add to exactly 1."""
    last = spine.levels[-1]
    columns = [(level.parent, level.shares, level.share_code) for level in spine.levels]
    wrong = unbalanced_paths(*zip(*columns, strict=True))
    if wrong.size:
        what = f"the shares on the path to {last.describe(wrong[0])} do not add to 1"
        failures.add(what, wrong.size)


def unbalanced_paths(
    parents: Sequence[np.ndarray],
    shares: Sequence[Sequence[Fraction]],
    share_codes: Sequence[np.ndarray],
) -> np.ndarray:
    """Positions in the last level whose path's shares do not add to exactly 1; empty if sound.

    `parents[l]` (n_l,) holds positions in level l - 1 (the root level's are not read), and geounit
    i of level l has the share `shares[l][share_codes[l][i]]`. The arithmetic is exact. A geounit
    whose own share is negative makes every path through it unbalanced.

    >>> half = [[Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 3)]]
    >>> root, children = np.array([-1]), np.array([0, 0, 0])
    >>> unbalanced_paths([root, children], half, [np.array([0]), np.array([0, 1, 0])])
    array([1])
    """
    denominator = math.lcm(*(share.denominator for level in shares for share in level))
    largest = sum(max((abs(share) for share in level), default=0) for level in shares)
    kind = np.int64 if largest * denominator < 2**63 else object
    total, is_negative = np.zeros(1, dtype=kind), np.zeros(1, dtype=bool)
    for depth, (parent, of_level, code) in enumerate(
        zip(parents, shares, share_codes, strict=True)
    ):
        above = parent if depth else np.zeros(len(code), dtype=np.int64)
        own = np.array([int(share * denominator) for share in of_level], dtype=kind)[code]
        total, is_negative = own + total[above], (own < 0) | is_negative[above]
    return np.flatnonzero((total != denominator) | is_negative)


def cut_depth(spine: RunSpine, blocks_per_part: int = BLOCKS_PER_PART) -> int:
    """Number of the geolevel of the cut: the first with as many geounits as there must be parts.

    0 for a spine that is one part.
    """
    n_parts = -(-spine.n_areas // blocks_per_part)
    enough = [i for i, level in enumerate(spine.levels[:-1]) if level.n >= n_parts]
    return enough[0] if enough else max(0, len(spine.levels) - 2)


def spine_parts(
    spine: RunSpine, blocks_per_part: int = BLOCKS_PER_PART, share: tuple[int, int] = (0, 1)
) -> Iterator[SpinePart]:
    """The parts of a spine, from the root down; of those below the cut, the share i of n.

    A part has about `blocks_per_part` blocks, more only where a geounit of the cut has more.
    """
    depth = cut_depth(spine, blocks_per_part)
    top = spine.levels[: depth + 1] if depth else spine.levels
    own = tuple(np.arange(level.n) for level in top)
    yield SpinePart(0, top, own, np.arange(spine.n_areas))
    if not depth:
        return
    below = spine.levels[depth:]
    n_blocks = np.bincount(spine.ancestors[depth], minlength=below[0].n)
    _, part = np.unique((np.cumsum(n_blocks) - n_blocks) // blocks_per_part, return_inverse=True)
    n_parts = int(part.max()) + 1
    numbered = [part]
    for level in below[1:]:
        numbered.append(numbered[-1][level.parent])
    numbered.append(part[spine.ancestors[depth]])
    members = []
    for part in numbered:
        order = np.argsort(part, kind="stable")
        members.append(np.split(order, np.searchsorted(part[order], np.arange(1, n_parts))))
    number, n_shares = share
    for *geounits, areas in list(zip(*members, strict=True))[
        n_parts * number // n_shares : n_parts * (number + 1) // n_shares
    ]:
        levels = [below[0].part(geounits[0], np.full(geounits[0].size, -1))]
        for level, here, above in zip(below[1:], geounits[1:], geounits, strict=False):
            levels.append(level.part(here, np.searchsorted(above, level.parent[here])))
        yield SpinePart(depth, tuple(levels), tuple(geounits), areas)
