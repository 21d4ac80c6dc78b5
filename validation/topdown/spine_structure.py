"""The spine of a run is one tree, and its two files describe the same one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import positions
from .run_files import STATE, RunSpine, SpineLevel, state_fips


def check_spine(spine: RunSpine, failures: Failures, *, with_digits: bool = True) -> None:
    """The two spine files agree: one tree, whose leaves are the blocks.

    Each block's ancestors are each other's parents, every Block geounit is one block and ends with
    its geocode, `n_blocks` counts the blocks below, geocodes below the root's children start with
    their parent's, the root level has one geounit, a geounit is marked as bypassed exactly if its
    share is 0, and a State geounit lies in one state. Unless `with_digits`, geocodes are not those
    of the United States, and nothing is asked of their digits.
    """
    root, leaves = spine.levels[0], spine.levels[-1]
    if root.n != 1:
        failures.add(f"the root geolevel {root.name} has {root.n} geounits")
    if with_digits:
        ends = pc.utf8_slice_codeunits(leaves.geocode.take(spine.ancestors[-1]), start=-16)
        failures.add_each(
            pc.not_equal(ends, spine.block_geocode),
            lambda i: f"block {spine.block_geocode[i]} has a Block geounit of another geocode",
        )
    for level, ancestor in zip(spine.levels, spine.ancestors, strict=True):
        _check_level(level, ancestor, failures)
    failures.add_each(
        np.bincount(spine.ancestors[-1], minlength=leaves.n) != 1,
        lambda i: f"{leaves.describe(i)} is not one area of its own",
    )
    for i in range(1, len(spine.levels)):
        _check_parents(spine, i, failures)
        if i > 1:
            _check_prefixes(spine.levels[i - 1], spine.levels[i], failures)
    if with_digits:
        _check_states(spine, failures)


def _check_level(level: SpineLevel, ancestor: np.ndarray, failures: Failures) -> None:
    """Counts of blocks, and marks of bypassed geounits; `ancestor` (n_blocks,) is each block's."""
    failures.add_each(
        np.bincount(ancestor, minlength=level.n) != level.n_blocks,
        lambda i: f"n_blocks of {level.describe(i)} is not its number of areas",
    )
    failures.add_each(
        level.bypassed == level.is_measured,
        lambda i: f"{level.describe(i)} is marked against its share",
    )


def _check_parents(spine: RunSpine, position: int, failures: Failures) -> None:
    """The ancestor of a block at a geolevel is a child of its ancestor one geolevel higher."""
    level = spine.levels[position]
    failures.add_each(
        level.parent[spine.ancestors[position]] != spine.ancestors[position - 1],
        lambda b: f"{spine.block_geocode[b]} has a {level.name} whose parent is not its own",
    )


def _check_prefixes(above: SpineLevel, level: SpineLevel, failures: Failures) -> None:
    parent_code = above.geocode.take(level.parent)
    length = pc.utf8_length(parent_code).to_numpy(zero_copy_only=False)
    starts_with_parent = np.zeros(level.n, dtype=bool)
    for digits in np.unique(length):
        start = pc.utf8_slice_codeunits(level.geocode, 0, int(digits))
        equal = pc.equal(start, parent_code).to_numpy(zero_copy_only=False)
        starts_with_parent |= (length == digits) & equal
    failures.add_each(
        ~starts_with_parent,
        lambda i: f"{level.describe(i)} does not start with its parent's geocode",
    )


def _check_states(spine: RunSpine, failures: Failures) -> None:
    if STATE not in [level.name for level in spine.levels]:
        return
    index = spine.level_index(STATE)
    fips, code_of_geounit = state_fips(spine)
    actual = positions(pc.utf8_slice_codeunits(spine.block_geocode, 0, 2), pa.array(fips))
    failures.add_each(
        code_of_geounit[spine.ancestors[index]] != actual,
        lambda b: f"block {spine.block_geocode[b]} has a State geounit of another state",
    )
