"""The graph of influence: every path by which a value of one table enters records of another.

Nodes are the input tables and the universes. An edge has the columns that it carries, and the
largest number of records at its end that one changed record at its beginning changes.

- `InfluencePath`: a table that a universe reads: its own, one of occupants, or one in `through`.
  The readers (`records`) ask it for tables and columns, so nothing is read by a path without an
  edge.
- `Edge`: columns of a table that were computed from records of another, by the office before the
  input was read (`computed_from`), or by the program (`members`).

A change is a change of one record of a table or, where persons are declared (`contributions`), of
all records of a person. Numbers multiply along a path, and those of parallel paths add up. A
changed record leaves one cell and enters another. A query group counts each record in at most one
row, so k changed records move its answers by at most 2 k in L1 and 2 k^2 in squared L2; both are
reached where all k leave one cell for another.

- The own table: one record, or as many as a row may represent (`largest_count`).
- Occupants: the `records_per_key` records to which a row referred, and as many to which it refers
  now, for every pair of columns that refer; if the reference stays, only the latter. Where records
  are occupants of each other by a key that they share, one changes `records_per_key` - 1 others.
- A step: `records_per_row`, times those of every step before. Without such a number there is no
  bound: the guarantee then covers the other tables only, and takes the values of this table as
  fixed; columns computed there from a protected table need a bound.
- `computed_from`: as declared, in all columns of the universe, or in the named ones, also of other
  universes that read the same columns. A universe's own declaration replaces the numbers that would
  follow from declarations of others.
- `members`: two units, the one that a person leaves and the one that the person joins.

A person with several records in one table may have one in every other table with people's records
(`Graph.people`): their joint change is charged.

Keys of a universe that bring values of tables into its records, with their edges:

- `table`, `occupants`, `through`: paths to records of the universe, to rows that refer to them, and
  to tables that they refer to; `computed_from`: an edge from the table that columns were computed
  from.
- `attributes`, `further_attributes`, `where`: columns that paths read; `area`: columns of the own
  table, or of the last step; `count`: a column of the own table; `largest_count`: the most records
  that one of its rows may represent.

The other keys bring no values into records:

- `structural_zeros`: a rule for the input, without its values; `relations`, `held_to`: released
  counts, and such a rule; `agree`: released counts; `counted`: names and maps of released counts.
- `invariants`: exact answers, which the office declares public; `bounds`: exact answers, see
  `exact_answers.refuse_protected_answers`; `microdata`: released counts, with `described_by`, while
  `further` adds exact answers.
- `identity`: digests under the ledger's key; `public`: a permission.

Of the keys of a census, `universes` has paths and edges, `members` an edge from the persons to the
units whose columns are computed from them, `contributions` the number of records that change
together. The rest are `attributes`, `coarsenings` and formats of `files`; the public areas
(`geography`, `code_parts`, `summary_levels`); the choice of reader (`layout`; that of the Census
Edited File has its preset's edges); words (`certificate`); and released counts, with the
confidential report of accuracy (`tables`, `quantities`, `redistricting`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest

from .declarations import CensusDeclaration, ContributionDeclaration, UniverseDeclaration
from .households import UNIT_COLUMNS


@dataclass(frozen=True)
class Norms:
    """Bounds on how far a change moves the answers to any query group: L1, and squared L2."""

    l1: int = 2
    squared_l2: int = 2

    @classmethod
    def of_records(cls, records: int, *, opposite: bool = False) -> Norms:
        """Return the norms of `records` changed records; `opposite` if half of them move from one
        cell to another and half move back.

        In one area opposite moves cancel; the worst case is each half in an area of its own.

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
    opposite : whether as many records move from one cell to another as back.
    is_charged : whether the ledger charges it; otherwise the certificate states it.
    beside : further tables in which the same person may have records, all of which change.
    """

    table: str
    records: int | None
    opposite: bool = False
    is_charged: bool = True
    beside: tuple[str, ...] = ()

    @property
    def norms(self) -> Norms:
        """The norms of the moved answers; raises ValueError where no bound follows."""
        if self.records is None:
            raise ValueError(f"no bound follows for the table {self.table!r}")
        return Norms.of_records(self.records, opposite=self.opposite)


def norms_of(reaches: Iterable[Reach]) -> Norms:
    """Return the norms of the largest change, at least those of one changed record."""
    norms = [Norms(), *(reach.norms for reach in reaches if reach.records is not None)]
    return Norms(max(one.l1 for one in norms), max(one.squared_l2 for one in norms))


OWN, OCCUPANTS, STEP = "table", "occupants", "through"
"""Kinds of paths, named after the keys of a universe that declare them."""


@dataclass(frozen=True)
class InfluencePath:
    """A path by which the records of a universe read a table; numbers are None without a bound.

    kind : `OWN`, `OCCUPANTS` or `STEP`.
    name : prefix of its columns in attributes; "" for the own table.
    columns : its columns that attributes and conditions of the universe read.
    conditions : its columns that select the rows that count, for occupants.
    references : its columns that link a row to its records, and these to their areas.
    found_by : the column of the previous table that finds its rows.
    records : most records that a row changes if its references stay the same.
    records_if_moved : most records that a row changes under any change.
    """

    kind: str
    name: str
    table: str
    columns: tuple[str, ...]
    conditions: tuple[str, ...]
    references: tuple[str, ...]
    found_by: str
    records: int | None
    records_if_moved: int | None

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that are read, each once."""
        return tuple(dict.fromkeys((*self.columns, *self.conditions, *self.references)))

    def changed_by(self, columns: Collection[str] | None) -> int | None:
        """Most records that a row changes by its values in `columns`; None means any column."""
        if columns is None or not set(columns).isdisjoint(self.references):
            return self.records_if_moved
        is_read = not set(columns).isdisjoint((*self.columns, *self.conditions))
        return self.records if is_read else 0


@dataclass(frozen=True)
class Edge:
    """Columns of a table that were computed from the records of another.

    rows : most rows that one changed record of `source` changes in these columns.
    universe : the universe that declares it; in that universe's own table `rows` counts records.
        None for columns that the program computes.
    key : the column of both tables that identifies the row of a record of `source`, for columns
        that the program computes; "" for others.
    """

    source: str
    table: str
    columns: frozenset[str]
    rows: int
    universe: str | None = None
    key: str = ""


@dataclass(frozen=True)
class Graph:
    """The paths of all universes by their names, and the edges between tables.

    people : tables that have people's records, as far as the declaration shows: those of persons
        (`contributions`), of occupants, and the sources of computed columns.
    """

    universes: Mapping[str, UniverseDeclaration]
    contributions: Mapping[str, ContributionDeclaration]
    paths: Mapping[str, tuple[InfluencePath, ...]]
    edges: tuple[Edge, ...]
    people: frozenset[str]

    def reaches(self, name: str) -> tuple[Reach, ...]:
        """The records of a universe that a change of each table changes.

        The own table is first, followed by those of occupants, those on the path to the area, and
        the sources of computed columns; last are the joint changes of one person's tables.
        """
        universe = self.universes[name]
        tables = [path.table for path in self.paths[name]]
        tables += sorted(universe.computed_from)
        further = {edge.source for edge in self.edges} - {*tables}
        tables += sorted(table for table in further if self._computed_records(name, table) != 0)
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
        """The path of a universe by which a change of the table `source` has no bound: a path that
        reads the table, or columns computed from it; None if all are bounded.
        """
        for path in self.paths[name]:
            is_own = path.kind == OWN
            edges = self._edges_into(name, source, path.table)
            made = [edge for edge in edges if not (is_own and edge.universe == name)]
            is_direct = path.table == source and not is_own and path.records_if_moved is None
            if is_direct or any(path.changed_by(edge.columns) is None for edge in made):
                return path
        return None

    def made_from(self, name: str, table: str) -> frozenset[str]:
        """Columns of a table that a universe reads and that are computed from other records."""
        sources = {edge.source for edge in self.edges}
        edges = [edge for source in sources for edge in self._edges_into(name, source, table)]
        return frozenset().union(*(edge.columns for edge in edges))

    def _parts(self, name: str, table: str) -> tuple[int | None, int | None, bool]:
        """Records that a change of a table changes directly, and by columns computed from it;
        whether the latter are charged.
        """
        contribution = self.contributions.get(table)
        times = 1 if contribution is None else contribution.records_per_person
        own = [path for path in self.paths[name] if path.table == table and path.kind == OWN]
        others = [path for path in self.paths[name] if path.table == table and path.kind != OWN]
        # `records_per_person` bounds the records that all rows of a person represent.
        # Without one the guarantee protects all records that a row may represent.
        of_one = (self.universes[name].largest_count or 1) if contribution is None else times
        first = of_one if own else 0
        direct = _sum((first, _times(times, _changed_records(others, None))))
        computed = self.universes[name].computed_from.get(table)
        made = _times(times, self._computed_records(name, table))
        return direct, made, computed is None or computed.is_charged

    def _computed_records(self, name: str, source: str) -> int | None:
        """Records of a universe that a record of a table changes by columns computed from it."""
        tables = dict.fromkeys(path.table for path in self.paths[name])
        return _sum(self._computed_records_by(name, source, table) for table in tables)

    def _computed_records_by(self, name: str, source: str, table: str) -> int | None:
        """As `_computed_records`, by the columns of one table alone."""
        by_source: dict[str, list[int | None]] = {}
        for edge in self._edges_into(name, source, table):
            by_source.setdefault(edge.source, []).append(self._changed_by(name, edge))
        return _sum(
            _times(self._rows(source, other), _largest(numbers))
            for other, numbers in by_source.items()
        )

    def _edges_into(self, name: str, source: str, table: str) -> list[Edge]:
        """Edges into a table by which changes of the table `source` reach a universe.

        In the same columns, a universe's own declaration about the source replaces declarations of
        other universes and paths by other tables. Without one, declarations of other universes
        about the source replace paths by other tables.
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
        """Records of a universe that change with one record at the beginning of an edge."""
        paths = [path for path in self.paths[name] if path.table == edge.table]
        is_own = edge.universe == name
        own = [edge.rows for path in paths if path.kind == OWN and is_own]
        others = [path for path in paths if not (path.kind == OWN and is_own)]
        number = _times(edge.rows, _changed_records(others, edge.columns))
        return _sum((*own, number, -self._counted_twice(name, edge)))

    def _counted_twice(self, name: str, edge: Edge) -> int:
        """Records that both a direct change and an edge count.

        A person whose unit has columns computed from its members is one of the members of two
        units, before the change and after it.
        """
        universe, steps = self.universes[name], self.universes[name].steps
        is_member = (
            edge.key != ""
            and edge.source == universe.table
            and edge.source not in self.contributions
            and universe.count is None
            and bool(steps)
            and (steps[0].table, steps[0].column, steps[0].key) == (edge.table, edge.key, edge.key)
        )
        first = next((path for path in self.paths[name] if path.kind == STEP), None)
        is_read = is_member and first is not None and first.changed_by(edge.columns)
        return edge.rows if is_read else 0

    def _rows(self, source: str, table: str, passed: frozenset[str] = frozenset()) -> int:
        """Rows of a table that a record of the table `source` changes by computed columns, over all
        paths; 1 if they are the same table.
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
        """Whether as many records move from one cell to another as back: if all are declared so."""
        universe = self.universes[name]
        computed = universe.computed_from.get(table)
        return (
            computed is not None
            and computed.opposite
            and direct == 0
            and table not in self.contributions
            and self._computed_records(name, table) == computed.records
            and not any(e.universe is None for e in self._edges_into(name, table, universe.table))
        )

    def _of_persons(
        self, parts: Mapping[str, tuple[int | None, int | None, bool]]
    ) -> Iterator[Reach]:
        """Reaches of a person's joint change of records in several tables."""
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
    universe read, by the names used there.

    Raises ValueError for a table of `computed_from` whose columns the universe does not read.
    """
    universes, contributions = declared.universes, declared.contributions
    paths = {
        name: tuple(_find_paths(universe, tuple(columns[name]), contributions))
        for name, universe in universes.items()
    }
    edges = [
        edge
        for name, universe in universes.items()
        for edge in _computed_edges(name, universe, paths[name], declared.geography.table)
    ]
    edges += [
        Edge(members.table, table, frozenset(UNIT_COLUMNS), 2, key=members.key)
        for table, members in declared.members.items()
    ]
    people = {*contributions, *(edge.source for edge in edges)}
    people |= {path.table for own in paths.values() for path in own if path.kind == OCCUPANTS}
    return Graph(universes, contributions, paths, tuple(edges), frozenset(people))


def refuse_unbounded(name: str, graph: Graph, areas: str) -> None:
    """Raise ValueError, with a remedy, for a universe whose charge has no bound.

    `areas` is the table of areas, which is public.
    """
    universe, where = graph.universes[name], f"universe {name!r}"
    own = [path.table for path in graph.paths[name] if path.kind != STEP]
    if areas in own:
        raise ValueError(
            f"{where} takes records from {areas!r}, the table of areas, which is public; put the "
            "records in a table of their own"
        )
    if universe.largest_count is not None and universe.count is None:
        raise ValueError(f"{where} has largest_count without count; remove it, or declare count")
    is_by_occupants = any(
        path.records_if_moved is None for path in graph.paths[name] if path.kind == OCCUPANTS
    )
    unbounded = {
        reach.table: path
        for reach in graph.reaches(name)
        if reach.records is None and (path := graph.unbounded(name, reach.table)) is not None
    }
    counted = [table for table, path in unbounded.items() if path.kind == OWN]
    if is_by_occupants or counted:
        cause = "occupants" if is_by_occupants else f"columns made from {counted[0]!r}"
        raise ValueError(
            f"{where} has {cause} and count, so that one of them changes as many records as a row "
            "represents; declare largest_count, the most that a row may represent"
        )
    for table, path in unbounded.items():
        if table != path.table:
            raise ValueError(
                f"{where} reads columns of {path.table!r} that are made from {table!r}, of which "
                "one record may change any number of records; declare records_per_row in the step "
                f"to {path.table!r}, or name the columns that are made in computed_from.{table}"
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
    read = {path.table for paths in graph.paths.values() for path in paths}
    if unread := sorted(declared.members.keys() - read):
        raise ValueError(f"members names {unread[0]!r}, which no universe reads; remove it")
    read |= {edge.source for edge in graph.edges}
    if unread := sorted(declared.contributions.keys() - read):
        raise ValueError(f"contributions names {unread[0]!r}, which no universe reads; remove it")


def _find_paths(
    universe: UniverseDeclaration,
    asked: tuple[str, ...],
    contributions: Mapping[str, ContributionDeclaration],
) -> Iterator[InfluencePath]:
    """The paths of a universe; `asked` are the columns that its attributes and conditions name."""
    steps, area = universe.steps, universe.area_columns
    names = (*universe.occupants, *(step.table for step in steps))

    def of(name: str) -> tuple[str, ...]:
        prefix = f"{name}."
        return tuple(dict.fromkeys(c.removeprefix(prefix) for c in asked if c.startswith(prefix)))

    own = tuple(c for c in asked if not c.startswith(tuple(f"{name}." for name in names)))
    keys = [occupant.key for occupant in universe.occupants.values()]
    places = (steps[0].column,) if steps else area
    counted = () if universe.count is None else (universe.count,)
    most = _records_of_a_row(universe, contributions.get(universe.table))
    references = (*places, *keys, *counted)
    yield InfluencePath(OWN, "", universe.table, own, (), references, "", most, most)
    for name, occupant in universe.occupants.items():
        is_own_group = occupant.table == universe.table and occupant.column == occupant.key
        kept = _times(occupant.records_per_key - is_own_group, most)
        where, column = tuple(occupant.where), (occupant.column,)
        moved = _times(2, kept)
        yield InfluencePath(
            OCCUPANTS, name, occupant.table, of(name), where, column, occupant.key, kept, moved
        )
    records: int | None = 1
    for step, following in zip_longest(steps, steps[1:]):
        records = _times(records, step.records_per_row)
        places = area if following is None else (following.column,)
        references, found_by = (step.key, *places), step.column
        yield InfluencePath(
            STEP, step.table, step.table, of(step.table), (), references, found_by, records, records
        )


def _computed_edges(
    name: str, universe: UniverseDeclaration, paths: Collection[InfluencePath], areas: str
) -> Iterator[Edge]:
    """Edges of the `computed_from` of a universe."""
    for source, computed in universe.computed_from.items():
        named = computed.columns
        read = [(path, frozenset(_value_columns(universe, path))) for path in paths]
        known = {f"{path.name}.{c}" if path.name else c for path, own in read for c in own}
        if unread := [column for column in named or () if column not in known]:
            raise ValueError(
                f"universe {name!r} has computed_from.{source} with the column {unread[0]!r}, "
                "which neither its attributes and conditions nor its count read; remove it"
            )
        for path, columns in read:
            if named is not None:
                prefix = f"{path.name}." if path.name else ""
                columns = frozenset(c for c in columns if f"{prefix}{c}" in named)
            is_own = path.kind == OWN
            # Areas are public, and an occupant's columns depend on its own record unless named.
            is_other_step = path.kind == STEP and path.table not in (areas, source)
            if (named is None and (is_own or (is_other_step and columns))) or (named and columns):
                yield Edge(source, path.table, columns, computed.records, name)


def _value_columns(universe: UniverseDeclaration, path: InfluencePath) -> Iterator[str]:
    """Columns of a path that provide values of records: all but the references."""
    yield from (*path.columns, *path.conditions)
    if path.kind == OWN and universe.count is not None:
        yield universe.count


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


def _changed_records(paths: Iterable[InfluencePath], columns: Collection[str] | None) -> int | None:
    """Records that a row changes by all of `paths` into a table.

    Paths of occupants that refer by the same columns, under any names, lead to the same records.
    """
    numbers: dict[tuple[object, ...], list[int | None]] = {}
    for number, path in enumerate(paths):
        is_by_occupants = path.kind == OCCUPANTS
        key = (path.references, path.found_by) if is_by_occupants else (number,)
        numbers.setdefault(key, []).append(path.changed_by(columns))
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
