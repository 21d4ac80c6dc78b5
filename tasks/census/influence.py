"""The graph of influence: every way by which a value of one table gets into a record of another.

Nodes are the input tables and the universes; an edge has the columns that it carries and the
largest number of records that one changed record at its beginning changes at its end.

- `InfluencePath`, a way: one table that a universe reads: its own, one of occupants, or one in
  `through`. The readers (`records`) take tables and columns from it alone, so every table read has
  an edge.
- `Edge`: columns of a table that were made from records of another, by the office before the input
  was read (`computed_from`), or by the program (`members`).

One change is a change of one record of a table or, where persons are declared (`contributions`), of
all records of a person. Along a path the numbers multiply, those of parallel paths add up. A record
that changes leaves one cell and enters another, so that k changed records move the answers to any
query group, of which each record is in one row at most, by no more than L1 2 k and squared L2 2
k^2; both are reached where all k leave one cell for another.

- The own table: one record, or as many as a row may represent (`largest_count`).
- Occupants: `records_per_key` of the records to which a row referred, and of those to which it
  refers now, for every pair of columns that refer; for columns that leave the reference unchanged,
  those to which it refers. Records that share their key with others of their own table change
  `records_per_key` - 1 of these.
- A step: `records_per_row`, times those of every step before. Without such a number there is no
  bound: the guarantee then covers the other tables only, with the values that records take from
  this one unchanged; columns made there from a protected table need a bound.
- `computed_from`: as declared, in all columns of the universe, or in the named ones, also by other
  universes that read the same columns. A universe's own declaration replaces the numbers that would
  follow from declarations of others.
- `members`: two units, the one that a person leaves and the one that is joined.

A person with several records in one table may have one in every other table with people's records
(`Graph.people`): their joint change is charged.

Keys of a universe by which values of tables get into its records, with their edges:

- `table`, `occupants`, `through`: ways to records of the universe, to rows that refer to them, and
  to tables that they refer to; `computed_from`: an edge from the table that columns were computed
  from.
- `attributes`, `further_attributes`, `where`: columns that ways read; `area`: columns of the own
  table, or of the last step; `count`: a column of the own table; `largest_count`: the records of a
  row of it.

By its other keys no record has a value:

- `structural_zeros`: a rule for the input, without values of it; `relations`, `held_to`: released
  counts, and such a rule; `agree`: released counts; `counted`: words and maps of released counts.
- `invariants`: exact answers, which the office declares to be public; `bounds`: exact answers, see
  `exact_answers.refuse_protected_answers`; `microdata`: released counts, with `described_by`, while
  `further` adds exact answers.
- `identity`: digests under the ledger's key; `public`: a permission.

Of the keys of a census `universes` has ways and edges, `members` an edge from the persons to the
units whose columns are computed from them, `contributions` how many records change together. The
rest are `attributes`, `coarsenings` and formats of `files`; the public areas (`geography`,
`code_parts`, `summary_levels`); the choice of reader (`layout`; that of the Census Edited File has
its preset's edges); words (`certificate`); and released counts, with the confidential report of
accuracy (`tables`, `quantities`, `redistricting`).

Norms of a change: how far some changed records move answers, and its cost.

The number of records that a change of one record of an input table changes follows from the graph
of influence (`influence`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest

from .declarations import CensusDeclaration, ContributionDeclaration, Step, UniverseDeclaration
from .households import UNIT_COLUMNS


@dataclass(frozen=True)
class Norms:
    """Bounds on how far a change moves the answers to any query group: L1, and squared L2."""

    l1: int = 2
    squared_l2: int = 2

    @classmethod
    def of_records(cls, records: int, *, opposite: bool = False) -> Norms:
        """Return the norms of `records` changed records; `opposite` if as many move one way as the
        other.

        In one area opposite records cancel; the worst is either half in an area of its own.

        >>> Norms.of_records(2), Norms.of_records(2, opposite=True)
        (Norms(l1=4, squared_l2=8), Norms(l1=4, squared_l2=4))
        """
        half = records // 2 if opposite else 0
        return cls(2 * records, 2 * (half**2 + (records - half) ** 2))

    @property
    def rho_factor(self) -> Fraction:
        """Ratio of the change's rho to that of one changed record."""
        return Fraction(self.squared_l2, 2)

    @property
    def epsilon_factor(self) -> Fraction:
        """Ratio of the change's epsilon, under pure differential privacy, to that of one record."""
        return Fraction(self.l1, 2)


@dataclass(frozen=True)
class Reach:
    """The change in a universe caused by one changed record of a table, or person in it.

    records : most records of the universe that change; None where no bound follows.
    opposite : whether as many records move one way as the other.
    is_charged : whether the ledger charges it; otherwise the certificate states it.
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
    """Return the norms of the largest change, at least those of one changed record."""
    norms = [Norms(), *(reach.norms for reach in reaches if reach.records is not None)]
    return Norms(max(one.l1 for one in norms), max(one.squared_l2 for one in norms))


OWN, OCCUPANTS, STEP = "table", "occupants", "through"
"""Kinds of ways, called as the keys of a universe that declare them."""


@dataclass(frozen=True)
class InfluencePath:
    """A path by which the records of a universe read a table.

    kind : `OWN`, `OCCUPANTS` or `STEP`.
    name : prefix of its columns in attributes; "" for the own table.
    columns : columns that attributes and conditions of the universe read there.
    conditions : columns that decide which of its rows count, as for occupants.
    references : columns that link a row to its records, and these to their areas.
    found_by : the column by which the rows are found, in the previous table.
    records : most records that a row changes whose references stay the same; None without a bound.
    moved : most records that a row changes under any change.
    """

    kind: str
    name: str
    table: str
    columns: tuple[str, ...]
    conditions: tuple[str, ...]
    references: tuple[str, ...]
    found_by: str
    records: int | None
    moved: int | None

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that are read, each once."""
        return tuple(dict.fromkeys((*self.columns, *self.conditions, *self.references)))

    def changed_by(self, columns: Collection[str] | None) -> int | None:
        """Most records that a row changes by some columns, or by any."""
        if columns is None or not set(columns).isdisjoint(self.references):
            return self.moved
        is_read = not set(columns).isdisjoint((*self.columns, *self.conditions))
        return self.records if is_read else 0


@dataclass(frozen=True)
class Edge:
    """Columns of a table that were made from the records of another.

    rows : most rows that one changed record of `source` changes in these columns.
    universe : the universe that declares it, whose records `rows` counts in its own table; None for
        columns that the program makes.
    key : subset of these, the column of both tables that identifies a row; "" for others.
    """

    source: str
    table: str
    columns: frozenset[str]
    rows: int
    universe: str | None = None
    key: str = ""


@dataclass(frozen=True)
class Graph:
    """The ways of all universes by their names, and the edges between tables.

    people : tables that have people's records, as far as the declaration shows: those of persons
        (`contributions`), of occupants, and the sources of computed columns.
    """

    universes: Mapping[str, UniverseDeclaration]
    contributions: Mapping[str, ContributionDeclaration]
    ways: Mapping[str, tuple[InfluencePath, ...]]
    edges: tuple[Edge, ...]
    people: frozenset[str]

    def reaches(self, name: str) -> tuple[Reach, ...]:
        """The number of records of a universe that a change of each table changes.

        The own table is first, followed by those of occupants, those on the path to the area, the
        sources of computed columns, and last several tables in which a person may have records.
        """
        universe = self.universes[name]
        tables = [way.table for way in self.ways[name]]
        tables += sorted(universe.computed_from)
        further = {edge.source for edge in self.edges} - {*tables}
        tables += sorted(table for table in further if self._made(name, table) != 0)
        parts = {table: self._parts(name, table) for table in dict.fromkeys(tables)}
        found: list[Reach] = []
        for table, (direct, made, is_charged) in parts.items():
            records = _sum((direct, made))
            if not is_charged and direct != 0:
                found.append(Reach(table, direct))
            opposite = self._is_opposite(name, table, direct)
            found.append(Reach(table, records, opposite, is_charged))
        return (*found, *self._of_persons(parts))

    def unbounded(self, name: str, source: str) -> InfluencePath | None:
        """The way of a universe by which a change of a table has no bound, if any: to its own
        records, or to columns that are made from them.
        """
        for way in self.ways[name]:
            is_own = way.kind == OWN
            edges = self._into(name, source, way.table)
            made = [edge for edge in edges if not (is_own and edge.universe == name)]
            is_met = way.table == source and not is_own and way.moved is None
            if is_met or any(way.changed_by(edge.columns) is None for edge in made):
                return way
        return None

    def made_from(self, name: str, table: str) -> frozenset[str]:
        """Columns of a table, as a universe reads them, that are made from other records."""
        sources = {edge.source for edge in self.edges}
        edges = [edge for source in sources for edge in self._into(name, source, table)]
        return frozenset().union(*(edge.columns for edge in edges))

    def _parts(self, name: str, table: str) -> tuple[int | None, int | None, bool]:
        """Records that a change of a table changes at once, and by columns that are made from it;
        whether the latter are charged.
        """
        contribution = self.contributions.get(table)
        times = 1 if contribution is None else contribution.records_per_person
        own = [way for way in self.ways[name] if way.table == table and way.kind == OWN]
        others = [way for way in self.ways[name] if way.table == table and way.kind != OWN]
        # The person's number bounds the records that the person's rows represent.
        of_one = _records_of_one(self.universes[name]) if contribution is None else times
        first = of_one if own else 0
        direct = _sum((first, _times(times, _changed_records(others, None))))
        computed = self.universes[name].computed_from.get(table)
        made = _times(times, self._made(name, table))
        return direct, made, computed is None or computed.is_charged

    def _made(self, name: str, source: str) -> int | None:
        """Records of a universe that a record of a table changes by columns made from it."""
        tables = dict.fromkeys(way.table for way in self.ways[name])
        return _sum(self._made_there(name, source, table) for table in tables)

    def _made_there(self, name: str, source: str, table: str) -> int | None:
        """Like `_made`, by the columns of one table."""
        by_source: dict[str, list[int | None]] = {}
        for edge in self._into(name, source, table):
            by_source.setdefault(edge.source, []).append(self._changed_by(name, edge))
        return _sum(
            _times(self._rows(source, other), _largest(numbers))
            for other, numbers in by_source.items()
        )

    def _into(self, name: str, source: str, table: str) -> list[Edge]:
        """Edges into a table by which a universe meets changes of another.

        A universe's own declaration about the source replaces, in the same columns, those of other
        universes and paths by other tables; so do declarations of others about the source, where
        there are any.
        """
        own = [e for e in self.edges if (e.universe, e.source, e.table) == (name, source, table)]
        covered = frozenset[str]().union(*(edge.columns for edge in own))
        met = [
            edge if edge.universe is None else replace(edge, columns=edge.columns - covered)
            for edge in self.edges
            if edge.table == table and edge not in own
        ]
        met = [
            edge
            for edge in met
            if self._changed_by(name, edge) != 0 and self._rows(source, edge.source) != 0
        ]
        direct = [edge for edge in met if edge.source == source]
        is_declared = any(edge.universe is not None for edge in direct)
        return [*own, *(direct if is_declared else met)]

    def _changed_by(self, name: str, edge: Edge) -> int | None:
        """Records of a universe that one change at the beginning of an edge changes."""
        ways = [way for way in self.ways[name] if way.table == edge.table]
        is_own = edge.universe == name
        own = [edge.rows for way in ways if way.kind == OWN and is_own]
        others = [way for way in ways if not (way.kind == OWN and is_own)]
        number = _times(edge.rows, _changed_records(others, edge.columns))
        return _sum((*own, number, -self._counted_twice(name, edge)))

    def _counted_twice(self, name: str, edge: Edge) -> int:
        """Records that are changed at once and by an edge: whose own unit has columns that its
        members make is one of them, before and after.
        """
        universe, steps = self.universes[name], steps_of(self.universes[name])
        is_member = (
            edge.key != ""
            and edge.source == universe.table
            and edge.source not in self.contributions
            and universe.count is None
            and bool(steps)
            and (steps[0].table, steps[0].column, steps[0].key) == (edge.table, edge.key, edge.key)
        )
        first = next((way for way in self.ways[name] if way.kind == STEP), None)
        is_read = is_member and first is not None and first.changed_by(edge.columns)
        return edge.rows if is_read else 0

    def _rows(self, source: str, table: str, passed: frozenset[str] = frozenset()) -> int:
        """Rows of a table that a record of another changes by columns that are made from it, over
        all paths; one if they are the same table.
        """
        if source == table:
            return 1
        into = [edge for edge in self.edges if edge.table == table and edge.source not in passed]
        direct = [edge.rows for edge in into if edge.source == source]
        if any(edge.universe is not None for edge in into if edge.source == source):
            return max(direct)
        rows: dict[str, int] = {}
        for edge in into:
            rows[edge.source] = max(rows.get(edge.source, 0), edge.rows)
        passed |= {table}
        return sum(self._rows(source, other, passed) * most for other, most in rows.items())

    def _is_opposite(self, name: str, table: str, direct: int | None) -> bool:
        """Whether as many records move one way as the other: true if all are declared so."""
        universe = self.universes[name]
        computed = universe.computed_from.get(table)
        return (
            computed is not None
            and computed.opposite
            and direct == 0
            and table not in self.contributions
            and self._made(name, table) == computed.records
            and not any(e.universe is None for e in self._into(name, table, universe.table))
        )

    def _of_persons(
        self, parts: Mapping[str, tuple[int | None, int | None, bool]]
    ) -> Iterator[Reach]:
        """Reaches of several tables in which one person may have records, changed together."""
        tables = [
            table
            for table, (direct, made, _) in parts.items()
            if table in self.people and _sum((direct, made)) is not None
        ]
        if len(tables) < 2 or self.contributions.keys().isdisjoint(tables):
            return
        charged = [_sum(parts[table][: 2 if parts[table][2] else 1]) for table in tables]
        stated = [_sum(parts[table][:2]) for table in tables]
        yield Reach(tables[0], _sum(charged), beside=tuple(tables[1:]))
        if stated != charged:
            yield Reach(tables[0], _sum(stated), is_charged=False, beside=tuple(tables[1:]))


def graph_of(declared: CensusDeclaration, columns: Mapping[str, Iterable[str]]) -> Graph:
    """Build the graph of a census; `columns` are those that the attributes and conditions of each
    universe read, as they name them.

    Raises ValueError for a table of `computed_from` whose columns the universe does not read.
    """
    universes, contributions = declared.universes, declared.contributions
    ways = {
        name: tuple(_find_paths(universe, tuple(columns[name]), contributions))
        for name, universe in universes.items()
    }
    edges = [
        edge
        for name, universe in universes.items()
        for edge in _computed_edges(name, universe, ways[name], declared.geography.table)
    ]
    edges += [
        Edge(members.table, table, frozenset(UNIT_COLUMNS), 2, key=members.key)
        for table, members in declared.members.items()
    ]
    people = {*contributions, *(edge.source for edge in edges)}
    people |= {way.table for own in ways.values() for way in own if way.kind == OCCUPANTS}
    return Graph(universes, contributions, ways, tuple(edges), frozenset(people))


def refuse_unbounded(name: str, graph: Graph, areas: str) -> None:
    """Raise ValueError, with the remedy, for a universe whose charge has no bound.

    `areas` is the table of areas, which is public.
    """
    universe, where = graph.universes[name], f"universe {name!r}"
    own = [way.table for way in graph.ways[name] if way.kind != STEP]
    if areas in own:
        raise ValueError(
            f"{where} takes records from {areas!r}, the table of areas, which is public; put the "
            "records in a table of their own"
        )
    if universe.largest_count is not None and universe.count is None:
        raise ValueError(f"{where} has largest_count without count; remove it, or declare count")
    is_told = any(way.moved is None for way in graph.ways[name] if way.kind == OCCUPANTS)
    unbounded = {
        reach.table: way
        for reach in graph.reaches(name)
        if reach.records is None and (way := graph.unbounded(name, reach.table)) is not None
    }
    counted = [table for table, way in unbounded.items() if way.kind == OWN]
    if is_told or counted:
        told = "occupants" if is_told else f"columns made from {counted[0]!r}"
        raise ValueError(
            f"{where} has {told} and count, so that one of them changes as many records as a row "
            "represents; declare largest_count, the most that a row may represent"
        )
    for table, way in unbounded.items():
        if table != way.table:
            raise ValueError(
                f"{where} reads columns of {way.table!r} that are made from {table!r}, of which "
                "one record may change any number of records; declare records_per_row in the step "
                f"to {way.table!r}, or name the columns that are made in computed_from.{table}"
            )
        if table in own:
            raise ValueError(
                f"{where} finds areas or columns through {table!r}, whose records it also counts "
                "or reads as occupants, so that one of them may change any number; declare "
                f"records_per_row in the step to {table!r}"
            )


def refuse_uncharged(declared: CensusDeclaration, graph: Graph) -> None:
    """Raise ValueError for a declaration from which no charge follows for one changed record."""
    for name in declared.universes:
        refuse_unbounded(name, graph, declared.geography.table)
    read = {way.table for ways in graph.ways.values() for way in ways}
    if idle := sorted(declared.members.keys() - read):
        raise ValueError(f"members names {idle[0]!r}, which no universe reads; remove it")
    read |= {edge.source for edge in graph.edges}
    if idle := sorted(declared.contributions.keys() - read):
        raise ValueError(f"contributions names {idle[0]!r}, which no universe reads; remove it")


def steps_of(universe: UniverseDeclaration) -> tuple[Step, ...]:
    """The tables on the way to a universe's area."""
    through = universe.through
    return (through,) if isinstance(through, Step) else through


def _find_paths(
    universe: UniverseDeclaration,
    asked: tuple[str, ...],
    contributions: Mapping[str, ContributionDeclaration],
) -> Iterator[InfluencePath]:
    """The ways of a universe; `asked` are the columns that its attributes and conditions name."""
    steps = steps_of(universe)
    area = (universe.area,) if isinstance(universe.area, str) else universe.area or ()
    names = (*universe.occupants, *(step.table for step in steps))

    def of(name: str) -> tuple[str, ...]:
        prefix = f"{name}."
        return tuple(dict.fromkeys(c.removeprefix(prefix) for c in asked if c.startswith(prefix)))

    own = tuple(c for c in asked if not c.startswith(tuple(f"{name}." for name in names)))
    keys = [occupant.key for occupant in universe.occupants.values()]
    places = (steps[0].column,) if steps else area
    counted = () if universe.count is None else (universe.count,)
    most = _records_of_a_row(universe, contributions.get(universe.table))
    found = (*places, *keys, *counted)
    yield InfluencePath(OWN, "", universe.table, own, (), found, "", most, most)
    for name, occupant in universe.occupants.items():
        is_own_group = occupant.table == universe.table and occupant.column == occupant.key
        told = _times(occupant.records_per_key - is_own_group, most)
        where, column = tuple(occupant.where), (occupant.column,)
        both = _times(2, told)
        yield InfluencePath(
            OCCUPANTS, name, occupant.table, of(name), where, column, occupant.key, told, both
        )
    records: int | None = 1
    for step, following in zip_longest(steps, steps[1:]):
        records = _times(records, step.records_per_row)
        places = area if following is None else (following.column,)
        there, found_by = (step.key, *places), step.column
        yield InfluencePath(
            STEP, step.table, step.table, of(step.table), (), there, found_by, records, records
        )


def _computed_edges(
    name: str, universe: UniverseDeclaration, ways: Collection[InfluencePath], areas: str
) -> Iterator[Edge]:
    """Edges declared by a universe for columns that were computed before."""
    for source, computed in universe.computed_from.items():
        named = computed.columns
        read = [(way, frozenset(_value_columns(universe, way))) for way in ways]
        known = {f"{way.name}.{c}" if way.name else c for way, own in read for c in own}
        if idle := [column for column in named or () if column not in known]:
            raise ValueError(
                f"universe {name!r} has computed_from.{source} with the column {idle[0]!r}, which "
                "neither its attributes and conditions nor its count read; remove it"
            )
        for way, columns in read:
            if named is not None:
                prefix = f"{way.name}." if way.name else ""
                columns = frozenset(c for c in columns if f"{prefix}{c}" in named)
            is_own = way.kind == OWN
            # The areas are public, and an occupant's columns are its own unless they are named.
            is_met = way.kind == STEP and way.table not in (areas, source)
            if (named is None and (is_own or (is_met and columns))) or (named and columns):
                yield Edge(source, way.table, columns, computed.records, name)


def _value_columns(universe: UniverseDeclaration, way: InfluencePath) -> Iterator[str]:
    """Columns of a way that provide values of records: all but the references."""
    yield from (*way.columns, *way.conditions)
    if way.kind == OWN and universe.count is not None:
        yield universe.count


def _records_of_one(universe: UniverseDeclaration) -> int:
    """Records that one record of the own table represents; without `largest_count`, the guarantee
    protects one of them.
    """
    return universe.largest_count or 1


def _records_of_a_row(
    universe: UniverseDeclaration, contribution: ContributionDeclaration | None
) -> int | None:
    """Most records that a row of the own table represents; None without a bound."""
    if universe.count is None:
        return 1
    # A person's rows represent no more records than the person may have.
    bounds = [] if contribution is None else [contribution.records_per_person]
    bounds += [] if universe.largest_count is None else [universe.largest_count]
    return min(bounds, default=None)


def _changed_records(ways: Iterable[InfluencePath], columns: Collection[str] | None) -> int | None:
    """Records that a row changes by all of some ways into a table.

    Occupants that refer by the same columns are found by one row, under any names.
    """
    numbers: dict[tuple[object, ...], list[int | None]] = {}
    for number, way in enumerate(ways):
        is_told = way.kind == OCCUPANTS
        key = (way.references, way.found_by) if is_told else (number,)
        numbers.setdefault(key, []).append(way.changed_by(columns))
    return _sum(_largest(own) for own in numbers.values())


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)


def _times(one: int | None, other: int | None) -> int | None:
    if 0 in (one, other):
        return 0
    return None if one is None or other is None else one * other


def _largest(numbers: Collection[int | None]) -> int | None:
    return None if None in numbers else max(n for n in numbers if n is not None)
