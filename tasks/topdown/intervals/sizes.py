"""Size of the estimates behind margins and intervals, predicted before they are made.

Every geounit has two matrices, the known covariances and the undetermined part, of all its core
cells by each other in every component (`estimation.query_algebra`), and its means. The last
geolevel, which has the most geounits, is in memory all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...runs.errors import InputRefused
from ..estimation.largest_solve import gigabytes, memory_of_machine
from ..estimation.query_algebra import QueryAlgebra

MOST_NUMBERS = 1 << 28
"""Most numbers of the last geolevel's estimates for margins (2 GiB): forty times a state of a
million persons. It is the same on every machine, and so is the content of a release."""
PEAK = 3
"""Bytes in memory at once, as a multiple of the last geolevel's estimates: going up the spine, a
geounit's own estimates, its children's and their sum are needed together."""
BYTES = 8
FEW_CELLS = 32
"""Core cells up to which the number of areas, not of cells, makes estimates large."""


@dataclass(frozen=True)
class PosteriorSize:
    """The size of the estimates of a universe's last geolevel.

    geounits : their number. cells : the most core cells of one geounit. matrices : number of cells
    by cells matrices of each. told_apart : the core's attributes and their numbers of levels.
    numbers : total of all estimates.

    >>> size = PosteriorSize(257, 783, 64, {"age": 111, "education": 9}, 10**10)
    >>> size.sentence("persons")
    'the estimates of persons would take 80 GB: 64 matrices of 783 by 783 combinations of age (111 \
levels) and education (9 levels) for each of 257 areas'
    """

    geounits: int
    cells: int
    matrices: int
    told_apart: dict[str, int]
    numbers: int

    @classmethod
    def of(cls, algebra: QueryAlgebra, type_is_possible: np.ndarray) -> PosteriorSize:
        """Size for geounits that can have the types marked in `type_is_possible` (n, T)."""
        patterns, times = np.unique(type_is_possible, axis=0, return_counts=True)
        n_cells = np.array([algebra.cells_of(pattern).size for pattern in patterns], dtype=object)
        matrices = 2 * len(algebra.components)
        each = n_cells * algebra.n_coordinates + matrices * n_cells**2
        schema = algebra.schema
        told_apart = {schema.attributes[axis]: schema.shape[axis] for axis in algebra.core}
        most = int(max(n_cells, default=0))
        return cls(len(type_is_possible), most, matrices, told_apart, int(sum(times * each)))

    def sentence(self, universe: str) -> str:
        """The size in words, without a capital and a stop."""
        named = _join_words([f"{name} ({n:,} levels)" for name, n in self.told_apart.items()])
        return (
            f"the estimates of {universe} would take {gigabytes(BYTES * self.numbers)}: "
            f"{self.matrices:,} matrices of {self.cells:,} by {self.cells:,} combinations"
            f"{f' of {named}' if named else ''} for each of {self.geounits:,} areas"
        )

    @property
    def work(self) -> str:
        """The planned work, in words.

        >>> PosteriorSize(257, 1, 30, {}, 10**6).work
        'estimates and covariances of 257 areas and all above them, in up to 0.1 GB of memory'
        """
        return (
            f"estimates and covariances of {self.geounits:,} areas and all above them, in up to "
            f"{gigabytes(self.peak)} of memory"
        )

    @property
    def peak(self) -> int:
        """Bytes in memory at once while intervals are made."""
        return PEAK * BYTES * self.numbers

    @property
    def remedy(self) -> str:
        """The change to make, without a capital and a stop."""
        if self.cells <= FEW_CELLS:
            return "take fewer areas together"
        names = _join_words(list(self.told_apart))
        return (
            f"declare fewer levels of {names}, or leave out the structural zeros, bounds and "
            "queries of coarsenings that separate these levels: attributes that every query "
            "keeps whole or leaves out are in no combination"
        )


def margins_refusal(universe: str, size: PosteriorSize, together: int | None = None) -> str | None:
    """Why a universe gets no margins, and the remedy; None where it gets them.

    `together` are the numbers of all universes that are in memory at once, by default its own.
    """
    if max(size.numbers, together or 0) <= MOST_NUMBERS:
        return None
    all_of_them = ""
    if size.numbers <= MOST_NUMBERS:
        all_of_them = f", all universes together {gigabytes(BYTES * (together or 0))}"
    return (
        f"tables of {universe} have no margins: {size.sentence(universe)}{all_of_them}, and "
        f"{gigabytes(BYTES * MOST_NUMBERS)} are the most; {size.remedy}"
    )


def intervals_sentence(size: PosteriorSize) -> str:
    """Sentence for tables without margins: whether this machine can make intervals after the
    release."""
    memory = gigabytes(size.peak)
    if size.peak > memory_of_machine():
        return f"there are no intervals either, which would take {memory} of memory"
    return f"`spineflow intervals` can make intervals afterwards, in up to {memory} of memory"


def refuse_large_posterior(universe: str, size: PosteriorSize) -> None:
    """Raise InputRefused for intervals that this machine's memory cannot hold."""
    memory = memory_of_machine()
    if size.peak > memory:
        raise InputRefused(
            f"There can be no intervals here: {size.sentence(universe)}, several times over while "
            f"they are made, and this machine has {gigabytes(memory)}. Before the next run, "
            f"{size.remedy}; or take a machine with more memory."
        )


def _join_words(words: list[str]) -> str:
    *others, last = words or [""]
    return f"{', '.join(others)} and {last}" if others else last
