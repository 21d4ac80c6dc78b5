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
- a table from whose records columns were computed before the input was read: as declared;
- a table from whose records columns of any of these tables were made, by `computed_from` of another
  universe or by the program itself (`members`): the records that the made row reaches, for each of
  the rows that one changed record makes anew. A way without a bound is refused.

Where a person may have several records in a table (`contributions`), all of them may change, and
with them one record in every other table of occupants. Two such tables in one universe are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .declarations import (
    CensusDeclaration,
    ContributionDeclaration,
    Step,
    UniverseDeclaration,
)
from .households import UNIT_COLUMNS

RECORDS_OF_MEMBERS = 2
"""Units whose columns one changed member changes at most: the one that is left, and the one that is
joined."""


@dataclass(frozen=True)
class MadeColumns:
    """Columns of a table that were made from the records of another, its source.

    records : most rows of the table that one changed record of the source changes.
    is_charged : whether the ledger counts it.
    """

    table: str
    columns: frozenset[str]
    source: str
    records: int
    is_charged: bool = True


def made_columns(
    declared: CensusDeclaration, read: Mapping[str, Collection[str]]
) -> tuple[MadeColumns, ...]:
    """The columns that the program makes (`members`), or an office made (`computed_from`).

    `read` has the columns that each universe reads. Those of its own table count as made where a
    universe says that it was computed from another.
    """
    made = [
        MadeColumns(table, frozenset(UNIT_COLUMNS), members.table, RECORDS_OF_MEMBERS)
        for table, members in declared.members.items()
    ]
    for name, universe in declared.universes.items():
        own = frozenset(column for column in read[name] if "." not in column)
        made += [
            MadeColumns(universe.table, own, source, computed.records, computed.is_charged)
            for source, computed in universe.computed_from.items()
        ]
    return tuple(made)


@dataclass(frozen=True)
class MadeReach:
    """Records of a universe that one changed record of a source changes by columns made from it;
    None where no bound follows, `by` being the table whose step lacks it."""

    source: str
    by: str
    records: int | None
    is_charged: bool


def made_reaches(
    universe: UniverseDeclaration, read: Collection[str], made: Sequence[MadeColumns]
) -> tuple[MadeReach, ...]:
    """The ways by which made columns get into the records of a universe that reads some columns.

    What the universe itself declares of a source (`computed_from`) replaces what would follow for
    columns of its own table.
    """

    def reads(prefix: str, columns: frozenset[str]) -> bool:
        return any(column in columns for column in _within(read, prefix))

    found = []
    for one in made:
        numbers: list[int | None] = []
        if one.table == universe.table and one.source not in universe.computed_from:
            if reads("", one.columns):
                numbers.append(_records_of_a_row(universe))
        if reads(one.table, one.columns):
            numbers += _by_steps(universe, one.table)
        for name, occupant in universe.occupants.items():
            conditions = {occupant.column, *occupant.where}
            if occupant.table == one.table and (
                reads(name, one.columns) or not one.columns.isdisjoint(conditions)
            ):
                references = 2 if occupant.column in one.columns else 1
                rows = occupant.records_per_key * _records_of_a_row(universe)
                numbers.append(references * rows)
        for number in numbers:
            records = None if number is None else number * one.records
            found.append(MadeReach(one.source, one.table, records, one.is_charged))
    return tuple(dict.fromkeys(found))


def made_ways(
    declared: CensusDeclaration, read: Mapping[str, Collection[str]]
) -> dict[str, tuple[MadeReach, ...]]:
    """By universe, the ways by which made columns get into its records; `read` has the columns that
    each reads.

    Raises ValueError for a declaration from which no bound follows on what one changed record
    changes, and for contributions to a table that no universe reads.
    """
    made, found, known = made_columns(declared, read), {}, set[str]()
    for name, universe in declared.universes.items():
        found[name] = made_reaches(universe, read[name], made)
        areas = declared.geography.table
        refuse_unbounded(name, universe, declared.contributions, areas, found[name])
        known |= {one.table for one in reaches(universe, declared.contributions, found[name])}
    idle = sorted(declared.contributions.keys() - known)
    if idle:
        raise ValueError(f"contributions names {idle[0]!r}, which no universe reads; remove it")
    return found


def _within(columns: Iterable[str], prefix: str) -> Iterator[str]:
    """Columns of a table that a universe reads as `prefix.column`; its own without a prefix."""
    for column in columns:
        before, dot, after = column.partition(".")
        if not prefix and not dot:
            yield column
        elif dot and before == prefix:
            yield after


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

    def or_more(self, other: Norms) -> Norms:
        """The larger of both bounds, each by itself."""
        return Norms(max(self.l1, other.l1), max(self.squared_l2, other.squared_l2))

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
    universe: UniverseDeclaration,
    contributions: Mapping[str, ContributionDeclaration],
    made: Sequence[MadeReach] = (),
) -> tuple[Reach, ...]:
    """Of every table that tells something of a universe, what one changed record changes there.

    The table of the universe's records comes first, then those of its occupants, those on the way
    to its area, and those that columns were computed from, `made` being the ways by columns that
    the universe does not declare as computed itself.
    """
    tables = [universe.table, *(one.table for one in universe.occupants.values())]
    tables += [step.table for step in steps_of(universe)]
    tables += sorted({*universe.computed_from, *(one.source for one in made)})
    found: list[Reach] = []
    for table in dict.fromkeys(tables):
        contribution = contributions.get(table)
        times = 1 if contribution is None else contribution.records_per_person
        parts = [times * part for part in _by_occupants(universe, table)]
        if table == universe.table:
            # The records that a person's rows stand for are held to the person's number.
            parts.append(_records_of_a_row(universe) if contribution is None else times)
        if contribution is not None:
            others = {one.table for one in universe.occupants.values()} - {table}
            parts += [part for other in others for part in _by_occupants(universe, other)]
        own = [one for one in made if one.source == table]
        joined = [*_by_steps(universe, table), *(one.records for one in own if one.is_charged)]
        bounded = [times * part for part in joined if part is not None]
        records = sum([*parts, *bounded]) if len(bounded) == len(joined) else None
        found += _with_computed(universe, Reach(table, records), times)
        stated = [one.records for one in own if not one.is_charged]
        known = [times * part for part in stated if part is not None]
        if stated and len(known) == len(stated) and found[-1].records is not None:
            found.append(Reach(table, found[-1].records + sum(known), is_charged=False))
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
    made: Sequence[MadeReach] = (),
) -> None:
    """Raise ValueError, with the remedy, for a universe whose charge has no bound.

    `areas` is the table of areas, which is public; `made` are the ways by made columns.
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
    for one in made:
        if one.records is None:
            raise ValueError(
                f"{where} reads columns of {one.by!r} that were made from {one.source!r}, so that "
                f"one record of {one.source!r} may change any number of its own; declare "
                f"records_per_row in every step to {one.by!r}, or leave these columns out"
            )
    found = reaches(universe, contributions, made)
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
