"""Shares of a universe's microdata, with the estimates and facilities of their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..outcome import Failures
from ..run_files import UnusableRunFile, as_text, read_table
from .block_microdata import (
    ExpectedBlocks,
    Microdata,
    NotSeenRight,
    see_blocks,
    see_ends,
)
from .conservation import read_estimates
from .run_files import BLOCK, ExpectedUniverse, SpineLevel
from .spine_parts import BLOCKS_PER_PART

GEOCODE_DIGITS = 16


def see_share(
    run_directory: Path,
    release_directory: Path,
    expected: ExpectedUniverse,
    facilities: pa.Table | None,
    *,
    share: tuple[int, int] = (0, 1),
    is_private: bool = True,
    blocks_per_part: int = BLOCKS_PER_PART,
) -> list[tuple[int, int]]:
    """See the rows of a share of the blocks, i of n in the order of geocodes, to be right.

    Returns the first row, and that after the last, of every `blocks_per_part` blocks.
    Raises NotSeenRight, and what reading raises, where they are not, or cannot be told to be.
    """
    cells, layout = expected.cells, expected.layout
    if layout is None or (layout.further and facilities is None):
        raise NotSeenRight("layout or facilities")
    files = Microdata.of(release_directory, layout, cells, is_private)
    see_ends(files)
    file = run_directory / "spine" / cells.universe / "blocks.parquet"
    number = _as_numbers(read_table(file, ["block_geocode"])["block_geocode"])
    order = np.argsort(number, kind="stable")
    number = number[order]
    if not number.size or (number[1:] == number[:-1]).any():
        raise NotSeenRight("blocks")
    starts = np.arange(0, number.size, blocks_per_part)
    i, n = share
    starts = starts[starts.size * i // n : starts.size * (i + 1) // n]
    if not starts.size:
        return []
    here = slice(int(starts[0]), min(int(starts[-1]) + blocks_per_part, number.size))
    blocks = pa.array(order[here])
    geocode = as_text(read_table(file, [BLOCK], [BLOCK])[BLOCK].take(blocks))
    number = number[here]
    n_further = _facilities(number, facilities if layout.further else None)
    seen = []
    for start in range(0, number.size, blocks_per_part):
        part = slice(start, start + blocks_per_part)
        failures = Failures()
        level = _blocks(geocode[part])
        estimates = read_estimates(run_directory, cells.universe, level, cells.n, failures)
        if failures.count:
            raise NotSeenRight("estimates")
        seen.append(see_blocks(files, ExpectedBlocks(number[part], estimates, n_further[part])))
    return seen


def are_all_rows(seen: Sequence[tuple[int, int] | None], parquet: Path) -> bool:
    """Whether shares of its rows, in order, have every row of the file once."""
    at = 0
    for rows in seen:
        if rows is None or rows[0] != at:
            return False
        at = rows[1]
    try:
        return bool(seen) and at == pq.read_metadata(parquet).num_rows
    except (pa.ArrowException, OSError):
        return False


def _as_numbers(geocode: pa.ChunkedArray) -> np.ndarray:
    """Geocodes as numbers; raises NotSeenRight for those that are not of so many digits."""
    texts = as_text(geocode)
    is_number = pc.and_(pc.equal(pc.utf8_length(texts), GEOCODE_DIGITS), pc.ascii_is_decimal(texts))
    if texts.null_count or not pc.all(is_number, min_count=0).as_py():
        raise NotSeenRight("geocodes")
    return pc.cast(texts, pa.int64()).to_numpy()


def _facilities(number: np.ndarray, facilities: pa.Table | None) -> np.ndarray:
    """Facilities of blocks with these ascending numbers."""
    n_further = np.zeros(number.size, dtype=np.int64)
    if facilities is None:
        return n_further
    count = facilities["facilities"].to_numpy().astype(np.int64)
    has_some = np.flatnonzero(count)
    geocode = facilities["block_geocode"].take(pa.array(has_some))
    of_facilities, count = _as_numbers(geocode), count[has_some]
    if np.unique(of_facilities).size != of_facilities.size:
        raise NotSeenRight("facilities")
    inside = (of_facilities >= number[0]) & (of_facilities <= number[-1])
    place = np.searchsorted(number, of_facilities[inside])
    if (number[place] != of_facilities[inside]).any():
        raise UnusableRunFile("a block with facilities is not known")
    n_further[place] = count[inside]
    return n_further


def _blocks(geocode: pa.StringArray) -> SpineLevel:
    """Some geounits of the geolevel Block, of which only the geocodes are known."""
    nothing = np.zeros(len(geocode), dtype=np.int64)
    return SpineLevel(BLOCK, geocode, nothing, (), nothing, nothing > 0, nothing, is_part=True)
