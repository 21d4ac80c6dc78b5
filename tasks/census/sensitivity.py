"""What one changed record of an input table changes in a universe: the charge that follows.

A universe counts records by area and cell. A record that changes leaves one cell and enters
another, so that a change of k records changes the answers to any query group, of which each record
is in one row at most, by no more than L1 2 k and squared L2 2 k^2; both are reached where all k
leave one cell for another. A record that is added or removed changes less. k follows from the
declaration, for every table that tells something of the universe:

- the table of its records: one record, or as many as a row may stand for (`largest_count`);
- a table of occupants: the records that a row referred to, and those that it refers to now,
  `records_per_key` of each, for every pair of columns that refer. Records told by others of their
  own table, which share their key, are `records_per_key` - 1 of each beside the record itself;
- a table on the way to the area: all records that take something from its row, which are
  `records_per_row`, times those of every step before. Without such a number no bound follows: the
  guarantee is then for the other tables, while what the records take from this one stays the same;
- a table from whose records columns were computed before the input was read: as declared.

Where a person may have several records in a table (`contributions`), all of them may change. Two
such tables in one universe are refused, since a person may have records in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from .declarations import ContributionDeclaration, Step, UniverseDeclaration


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
    """

    table: str
    records: int | None
    opposite: bool = False
    is_charged: bool = True

    @property
    def norms(self) -> Norms:
        """How far the answers move; raises ValueError where no bound follows."""
        if self.records is None:
            raise ValueError(f"no bound follows for the table {self.table!r}")
        return Norms.of_records(self.records, opposite=self.opposite)


def reaches(
    universe: UniverseDeclaration, contributions: Mapping[str, ContributionDeclaration]
) -> tuple[Reach, ...]:
    """Of every table that tells something of a universe, what one changed record changes there.

    The table of the universe's records comes first, then those of its occupants, those on the way
    to its area, and those that columns were computed from.
    """
    tables = [universe.table, *(one.table for one in universe.occupants.values())]
    tables += [step.table for step in steps_of(universe)]
    tables += sorted(universe.computed_from)
    found: list[Reach] = []
    for table in dict.fromkeys(tables):
        contribution = contributions.get(table)
        times = 1 if contribution is None else contribution.records_per_person
        parts = [times * part for part in _by_occupants(universe, table)]
        if table == universe.table:
            # The records that a person's rows stand for are held to the person's number.
            parts.append(_records_of_a_row(universe) if contribution is None else times)
        joined = list(_by_steps(universe, table))
        bounded = [times * part for part in joined if part is not None]
        records = sum([*parts, *bounded]) if len(bounded) == len(joined) else None
        found += _with_computed(universe, Reach(table, records), times)
    return tuple(found)


def charge_of(reaches: Iterable[Reach], *, is_charged: bool = True) -> Norms:
    """The norms of the largest change that is charged, or of what is stated beside the charge.

    They are at least those of one changed record.
    """
    known = [r for r in reaches if r.records is not None and r.is_charged == is_charged]
    norms = [Norms(), *(reach.norms for reach in known)]
    return Norms(max(one.l1 for one in norms), max(one.squared_l2 for one in norms))


def refuse_unbounded(
    name: str,
    universe: UniverseDeclaration,
    contributions: Mapping[str, ContributionDeclaration],
    areas: str | None,
) -> None:
    """Raise ValueError, with the remedy, for a universe whose charge has no bound.

    `areas` is the table of areas, which is public.
    """
    where = f"universe {name!r}"
    own = [universe.table, *(one.table for one in universe.occupants.values())]
    public = next((table for table in own if table == areas), None)
    if public is not None:
        raise ValueError(
            f"{where} takes records from {public!r}, the table of areas, which is public; put the "
            "records in a table of their own"
        )
    if universe.largest_count is not None and universe.count is None:
        raise ValueError(f"{where} has largest_count without count; remove it, or declare count")
    if universe.occupants and universe.count and universe.largest_count is None:
        raise ValueError(
            f"{where} has occupants beside count, so that one of them changes as many records as a "
            "row stands for; declare largest_count, the most that a row may stand for"
        )
    for entry, occupant in universe.occupants.items():
        is_group = occupant.table == universe.table and occupant.column == occupant.key
        if is_group and occupant.records_per_key == 1:
            raise ValueError(
                f"{where} tells its records by others with the same {occupant.key} (occupants "
                f"{entry!r}), so that one changes all of them; declare records_per_key there, the "
                f"most records with one {occupant.key}, or a universe with one record for each "
                f"{occupant.key}"
            )
    found = reaches(universe, contributions)
    of_persons = sorted({reach.table for reach in found} & contributions.keys())
    if len(of_persons) > 1:
        raise ValueError(
            f"{where} is told by {' and '.join(map(repr, of_persons))}, in each of which a person "
            "may have several records, so that one person changes those of all; put them in one "
            "table, with records_per_person for all of them"
        )
    for reach in found:
        if reach.records is None and reach.table in own:
            raise ValueError(
                f"{where} finds areas or columns through {reach.table!r}, whose records it also "
                "counts or is told by, so that one of them may change any number; declare "
                f"records_per_row in the step to {reach.table!r}"
            )


def steps_of(universe: UniverseDeclaration) -> tuple[Step, ...]:
    """The tables on the way to a universe's area."""
    through = universe.through
    return (through,) if isinstance(through, Step) else through


def _with_computed(universe: UniverseDeclaration, reach: Reach, times: int) -> Iterator[Reach]:
    """What a table's records change at once, and by columns that were computed from them."""
    computed = universe.computed_from.get(reach.table)
    if computed is None:
        yield reach
        return
    opposite = computed.opposite and times == 1 and reach.records == 0
    records = None if reach.records is None else reach.records + times * computed.records
    if not computed.is_charged and reach.records:
        yield reach
    yield Reach(reach.table, records, opposite, computed.is_charged)


def _records_of_a_row(universe: UniverseDeclaration) -> int:
    """Records of a universe that one record of its table stands for.

    Without `largest_count`, what is protected is one of the records that a row stands for.
    """
    return universe.largest_count or 1


def _by_occupants(universe: UniverseDeclaration, table: str) -> Iterator[int]:
    """Records that a row of a table of occupants changes by what it tells, for every reference."""
    most: dict[tuple[str, str], int] = {}
    for occupant in universe.occupants.values():
        if occupant.table == table:
            pair = occupant.column, occupant.key
            most[pair] = max(most.get(pair, 0), occupant.records_per_key)
    for (column, key), records in most.items():
        is_own_group = table == universe.table and column == key
        yield 2 * (records - is_own_group) * _records_of_a_row(universe)


def _by_steps(universe: UniverseDeclaration, table: str) -> Iterator[int | None]:
    """Records that take something from a row of a table on the way, for every step to it."""
    records: int | None = 1
    for step in steps_of(universe):
        if records is not None:
            records = None if step.records_per_row is None else records * step.records_per_row
        if step.table == table:
            yield records
