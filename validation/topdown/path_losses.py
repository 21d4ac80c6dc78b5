"""Privacy losses summed along paths of which every piece of the checks knows a part.

A path runs from the root through one geounit of the cut to a block. Above the cut there is one sum
for each geounit of it; below, the sums of a geounit's blocks are a few, and are kept with how many
blocks have each of them, and the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ..outcome import Failures
from ..run_files import UnusableRunFile
from .privacy_loss import CodedSums
from .run_files import RunSpine
from .spine_parts import SpinePart


@dataclass(frozen=True)
class LossOfBlocks:
    """What the blocks of one geounit of the cut have lost below it.

    first : number of the first of the blocks, `geocode` its geocode.
    """

    geounit: int
    loss: str
    n_blocks: int
    first: int
    geocode: str


@dataclass
class LossesOnPaths:
    """Losses above the cut, by its geounits, and below it; n_blocks : of the whole spine."""

    n_blocks: int = 0
    above: list[str] = field(default_factory=list)
    below: list[LossOfBlocks] = field(default_factory=list)

    def add(self, further: LossesOnPaths) -> None:
        """Take in those of another piece."""
        self.n_blocks = self.n_blocks or further.n_blocks
        self.above = self.above or further.above
        self.below += further.below

    def check(self, total: Fraction, failures: Failures) -> None:
        """On the path to every block, the losses add to exactly `total`.

        Raises UnusableRunFile where the loss of some block is not known.
        """
        if sum(found.n_blocks for found in self.below) != self.n_blocks or not self.above:
            raise UnusableRunFile("the losses of some blocks are not known")
        above = [Fraction(loss) for loss in self.above]
        wrong = [
            (found.first, found, loss)
            for found in self.below
            if (loss := above[found.geounit] + Fraction(found.loss)) != total
        ]
        if wrong:
            _, found, loss = min(wrong, key=lambda one: one[0])
            failures.add(
                f"the measurements on the path to block {found.geocode} cost {loss} instead of "
                f"{total}",
                sum(one.n_blocks for _, one, _ in wrong),
            )


def losses_of_part(spine: RunSpine, part: SpinePart, losses: Sequence[CodedSums]) -> LossesOnPaths:
    """Sums of losses along paths, as far as they lie in a part of a spine.

    Of the part with the root they go from there to each geounit of the cut or, where the spine has
    no cut, to each block, as if all were of one geounit. Of another part they go from below the cut
    to each block. `losses` are those of the part's geounits, without the cut where it is above.
    """
    n_blocks = spine.levels[-1].n
    own = list(zip(part.levels[len(part.levels) - len(losses) :], losses, strict=True))
    path, geounit = CodedSums.zeros(part.levels[0].n), part.geounits[0]
    for level, loss in own:
        if level is not part.levels[0]:
            path, geounit = path.at(level.parent), geounit[level.parent]
        path = path.plus(loss.code, loss.sums)
    if part.levels[-1].name != spine.levels[-1].name:
        return LossesOnPaths(n_blocks, [str(path.sums[code]) for code in path.code.tolist()])
    is_all = not part.depth
    below = _grouped(spine, part.geounits[-1], 0 * geounit if is_all else geounit, path)
    return LossesOnPaths(n_blocks, ["0"] if is_all else [], below)


def _grouped(
    spine: RunSpine, leaves: np.ndarray, geounit: np.ndarray, path: CodedSums
) -> list[LossOfBlocks]:
    """How many of the leaves have each sum, by their geounits of the cut."""
    block_of = np.zeros(spine.levels[-1].n, dtype=np.int64)
    block_of[spine.ancestors[-1]] = np.arange(len(spine.block_geocode))
    block = block_of[leaves]
    order = np.argsort(block, kind="stable")
    keys, first, n = np.unique(
        (geounit * len(path.sums) + path.code)[order], return_index=True, return_counts=True
    )
    blocks = block[order][first]
    return [
        LossOfBlocks(
            key // len(path.sums),
            str(path.sums[key % len(path.sums)]),
            times,
            number,
            str(spine.block_geocode[number]),
        )
        for key, times, number in zip(keys.tolist(), n.tolist(), blocks.tolist(), strict=True)
    ]
