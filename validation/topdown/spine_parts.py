"""A spine cut into parts that are checked one after the other, so that memory stays bounded.

The first part has the geolevels from the root down to the cut; every other part has some geounits
of the geolevel of the cut and all that lies below them. A small spine is one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .run_files import RunSpine, SpineLevel

BLOCKS_PER_PART = 1 << 16


@dataclass(frozen=True)
class SpinePart:
    """Geounits of successive geolevels.

    `depth` is the number of the first geolevel, `geounits[i]` the ascending positions of the
    geounits of `levels[i]` in the spine's own level. Unless `depth` is 0, the first level is that
    of the cut: its geounits are in the first part too, and here as parents alone.
    """

    depth: int
    levels: tuple[SpineLevel, ...]
    geounits: tuple[np.ndarray, ...]


def cut_depth(spine: RunSpine, blocks_per_part: int = BLOCKS_PER_PART) -> int:
    """Number of the geolevel of the cut: the first with as many geounits as there must be parts.

    0 for a spine that is one part.
    """
    n_parts = -(-len(spine.block_geocode) // blocks_per_part)
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
    yield SpinePart(0, top, tuple(np.arange(level.n) for level in top))
    if not depth:
        return
    below = spine.levels[depth:]
    n_blocks = np.bincount(spine.ancestors[depth], minlength=below[0].n)
    _, part = np.unique((np.cumsum(n_blocks) - n_blocks) // blocks_per_part, return_inverse=True)
    n_parts = int(part.max()) + 1
    members = []
    for level in below:
        if level is not below[0]:
            part = part[level.parent]
        order = np.argsort(part, kind="stable")
        members.append(np.split(order, np.searchsorted(part[order], np.arange(1, n_parts))))
    number, n_shares = share
    for geounits in list(zip(*members, strict=True))[
        n_parts * number // n_shares : n_parts * (number + 1) // n_shares
    ]:
        levels = [below[0].part(geounits[0], np.full(geounits[0].size, -1))]
        for level, here, above in zip(below[1:], geounits[1:], geounits, strict=False):
            levels.append(level.part(here, np.searchsorted(above, level.parent[here])))
        yield SpinePart(depth, tuple(levels), geounits)
