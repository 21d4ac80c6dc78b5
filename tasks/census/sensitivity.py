"""Norms of a change: how far some changed records move answers, and what that costs.

The number of records that a change of one record of an input table changes follows from the graph
of influence (`influence`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Norms:
    """Bounds on how far a change moves the answers to any query group: L1, and squared L2."""

    l1: int = 2
    squared_l2: int = 2

    @classmethod
    def of_records(cls, records: int, *, opposite: bool = False) -> Norms:
        """Of some changed records; `opposite` if as many take one way as the other.

        In one area opposite records cancel; the worst is either half in an area of its own.

        >>> Norms.of_records(2), Norms.of_records(2, opposite=True)
        (Norms(l1=4, squared_l2=8), Norms(l1=4, squared_l2=4))
        """
        half = records // 2 if opposite else 0
        return cls(2 * records, 2 * (half**2 + (records - half) ** 2))

    @property
    def rho_factor(self) -> Fraction:
        """Rho of the change over that of one changed record."""
        return Fraction(self.squared_l2, 2)

    @property
    def epsilon_factor(self) -> Fraction:
        """Epsilon of the change, under pure differential privacy, over that of one record."""
        return Fraction(self.l1, 2)


@dataclass(frozen=True)
class Reach:
    """What one changed record of a table, or person in it, changes in a universe.

    records : how many of the universe's records at most; None where no bound follows.
    opposite : whether as many records take one way as the other.
    is_charged : whether the ledger counts it; what it does not count, the certificate states.
    beside : further tables in which the same person may have records, which change too.
    """

    table: str
    records: int | None
    opposite: bool = False
    is_charged: bool = True
    beside: tuple[str, ...] = ()

    @property
    def norms(self) -> Norms:
        """How far the answers move; raises ValueError where no bound follows."""
        if self.records is None:
            raise ValueError(f"no bound follows for the table {self.table!r}")
        return Norms.of_records(self.records, opposite=self.opposite)


def norms_of(reaches: Iterable[Reach]) -> Norms:
    """The norms of the largest change: at least those of one changed record."""
    norms = [Norms(), *(reach.norms for reach in reaches if reach.records is not None)]
    return Norms(max(one.l1 for one in norms), max(one.squared_l2 for one in norms))
