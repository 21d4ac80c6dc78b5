"""Records that agree with the released ones of an earlier universe, such as people with dwellings:
at most one for each of them, as many householders as dwellings are occupied, and as many people as
fit into dwellings of their sizes; and records that agree with others of their universe, such as
minors with adults.

`tasks.topdown.measurement.public_answers` proves that every release of the earlier universe leaves
a solution in every area, with sums equal to their parts, and `tasks.topdown.estimation.siblings`
that a universe has one; this module checks the assumptions of the proofs about a declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from ..runs.errors import refuse_errors
from ..runs.names import did_you_mean, refuse_unknown
from .attribute_declarations import ACCOMPANIED, HOUSEHOLDERS, PRESENCE, SIZES, AgreeDeclaration
from .compiled_schemas import refuse_later_universe
from .declarations import BoundDeclaration, CensusDeclaration, UniverseDeclaration
from .queries import TOTAL, Coarsening, Schema, label_parts, marginal_query, rows_that_count


@dataclass(frozen=True, eq=False)
class AgreeingTypes:
    """Cells of a universe by the agreements that fix their counts.

    label : (n_cells,) the type of each cell: 0 where nothing is fixed, then a type for each answer
        of the householders' query, then one for the other people whom sizes count.
    answers : (R,) the answers of the householders' query that the types 1 to R are.
    householders, sizes : the agreements, None for none.
    """

    label: np.ndarray
    answers: np.ndarray
    householders: AgreeDeclaration | None
    sizes: AgreeDeclaration | None

    @property
    def n_types(self) -> int:
        """Number of types."""
        return 1 + self.answers.size + (self.sizes is not None)

    @property
    def is_householder(self) -> np.ndarray:
        """Mask `(n_cells,)` of the cells whose answers are exactly those of the other universe."""
        return (self.label > 0) & (self.label <= self.answers.size)


def agreeing_types(agreements: Sequence[AgreeDeclaration], schema: Schema) -> AgreeingTypes | None:
    """The types that householders and sizes make of the cells; None where neither is declared."""
    by_kind: dict[str, AgreeDeclaration] = {one.kind: one for one in agreements}
    householders, sizes = by_kind.get(HOUSEHOLDERS), by_kind.get(SIZES)
    if householders is None and sizes is None:
        return None
    label, answers = np.zeros(schema.n_cells, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if householders is not None:
        inside = schema.cells_where(householders.where)
        row = marginal_query(schema, householders.query).row_of_cell[inside]
        answers, number = np.unique(row, return_inverse=True)
        label[inside] = 1 + number.reshape(-1)
    if sizes is not None:
        label[schema.cells_where(sizes.where) & (label == 0)] = 1 + answers.size
    return AgreeingTypes(label, answers, householders, sizes)


def householders_of_cells(
    householders: AgreeDeclaration, schema: Schema, other_schema: Schema
) -> np.ndarray:
    """Answer that counts each cell of the other universe, `(other_schema.n_cells,)`, -1 for none.

    Raises ValueError, as a clause about the other universe, for names that it lacks.
    """
    aliases = [_alias(name, theirs, other_schema) for name, theirs in householders.called.items()]
    named = replace(other_schema, coarsenings=(*aliases, *other_schema.coarsenings))
    one = householders
    for part, _, _ in label_parts(schema, one.query):
        if part not in named.known_names:
            raise ValueError(
                f"lacks {part!r}{did_you_mean(part, named.known_names)}; name it in called as it "
                "is named there, or choose another query"
            )
    return rows_that_count(schema, named, one.query, one.where, one.of)


def _alias(name: str, theirs: str, other_schema: Schema) -> Coarsening:
    """Return a coarsening of the other universe under its name in this one."""
    known = other_schema.known_names
    if theirs not in known or name in known:
        raise ValueError(
            f"has {name!r} itself; take it out of called"
            if name in known
            else f"lacks {theirs!r}{did_you_mean(theirs, known)}; it has {', '.join(known)}"
        )
    return replace(other_schema.grouping(theirs), name=name)


def people_of_cells(sizes: AgreeDeclaration, other_schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Least and most people of a record in each cell of the other universe, `(n_cells,)` each."""
    size = other_schema.grouping(sizes.size or "")
    group = np.array(size.groups)[other_schema.levels(size.attribute)]
    counted = other_schema.cells_where(sizes.of)
    limits = np.array([sizes.people.get(level, (0, 0)) for level in size.levels], dtype=np.int64)
    return limits[group, 0] * counted, limits[group, 1] * counted


@dataclass(frozen=True, eq=False)
class _Side:
    """A universe with the schema by which its records are compared with others."""

    name: str
    declared: UniverseDeclaration
    schema: Schema

    @classmethod
    def of(cls, name: str, census: CensusDeclaration, schemas: Mapping[str, Schema]) -> _Side:
        """A universe with the schema of its own attributes."""
        declared = census.universes[name]
        return cls(name, declared, schemas[name].of(declared.attributes))

    @cached_property
    def possible(self) -> np.ndarray:
        """Mask `(n_cells,)` of the cells outside the structural zeros."""
        possible = np.ones(self.schema.n_cells, dtype=bool)
        for zero in self.declared.structural_zeros:
            possible &= ~self.schema.cells_where(zero.where)
        return possible

    @property
    def invariants(self) -> list[tuple[str, str]]:
        """Query and geolevel of every invariant."""
        return [(one.query, one.geolevel) for one in self.declared.invariants]

    def bounded(self) -> Iterator[tuple[BoundDeclaration, np.ndarray]]:
        """Every bounded answer: its bound, and the mask `(n_cells,)` of its cells."""
        for bound in self.declared.bounds:
            inside = self.schema.cells_where(bound.where)
            row_of_cell = marginal_query(self.schema, bound.query).row_of_cell
            for row in np.unique(row_of_cell[inside]):
                yield bound, inside & (row_of_cell == row)

    def is_bounded(self, of: np.ndarray, per: str, at_most: int) -> bool:
        """Whether a bound holds all records in the cells `of` (n_cells,) together to so many per
        record of another universe.
        """
        return any(
            bound.per == per
            and bound.by is None
            and bound.at_most is not None
            and bound.at_most <= at_most
            and not (of & ~self.schema.cells_where(bound.where)).any()
            and np.unique(marginal_query(self.schema, bound.query).row_of_cell[of]).size == 1
            for bound in self.declared.bounds
        )


def compiled_agreements(
    name: str, census: CensusDeclaration, schemas: Mapping[str, Schema]
) -> tuple[AgreeDeclaration, ...]:
    """The agreements with others that a universe declares; `schemas` are all universes' in the
    declared order.

    Raises ValueError unless every release of the earlier universe leaves records that agree.
    """
    declared, last = census.universes[name], census.geography.geolevels[-1]
    entries = tuple(one for one in declared.agree if one.kind != ACCOMPANIED)
    for entry in entries:
        what, why = f"agree {entry.name!r} of {name!r}", _REASON if entry.kind == SIZES else ""
        refuse_later_universe(what, entry.universe, name, schemas, why)
    kinds, others = [entry.kind for entry in entries], {entry.universe for entry in entries}
    if {*kinds} <= {PRESENCE}:
        for entry in entries:
            own, other = (
                _Side(one, census.universes[one], schemas[one]) for one in (name, entry.universe)
            )
            _refuse_unfit_presence(f"agree {entry.name!r} of {name!r}", entry, own, other, last)
        return entries
    if len(set(kinds)) < len(kinds) or PRESENCE in kinds or len(others) > 1:
        raise ValueError(
            f"agree of {name!r} may have one entry of the kind 'householders' and one of the "
            "kind 'sizes', of the same universe, without one of the kind 'presence', which "
            "sizes include more exactly"
        )
    names = [entry.name for entry in entries]
    names += [bound.name for bound in declared.bounds if bound.name is not None]
    twice = [entry.name for entry in entries if names.count(entry.name) > 1]
    if twice:
        raise ValueError(
            f"universe {name!r} declares {twice[0]!r} twice; give one of them another name"
        )
    own, other = (_Side.of(one, census, schemas) for one in (name, entries[0].universe))
    for entry in entries:
        _refuse_unfit(f"agree {entry.name!r} of {name!r}", entry, own.schema, other)
    _Solvable(entries, own, other, last).refuse_what_is_not()
    return entries


_REASON = (
    ": numbers of people can follow every release of dwellings by size, while dwellings of given "
    "sizes cannot follow every number of people (two areas of three people each cannot share three "
    "dwellings of two)"
)


def _refuse_unfit_presence(
    what: str, entry: AgreeDeclaration, own: _Side, other: _Side, last: str
) -> None:
    """Raise ValueError for an agreement of presence that a universe declares, unless every release
    of the earlier universe leaves records that agree; `last` is the last geolevel.
    """
    declared = own.declared
    row_of_cell = marginal_query(own.schema, entry.query).row_of_cell
    inside = own.schema.cells_where(entry.where)
    if np.unique(row_of_cell[inside]).size != 1 or (
        np.isin(row_of_cell[~inside], row_of_cell[inside]).any()
    ):
        raise ValueError(f"{what} must be on one whole answer to {entry.query!r}")
    others = (declared.bounds, declared.relations, declared.held_to, declared.structural_zeros)
    if own.invariants != [(TOTAL, last)] or any(others):
        raise ValueError(
            f"{what} needs the total of {own.name!r} exact in every finest area, without bounds, "
            "relations, held_to and structural_zeros, so that records can always agree"
        )
    if not other.is_bounded(other.schema.cells_where(entry.of), own.name, entry.most):
        raise ValueError(
            f"{what} needs a bound on these records of {other.name!r} of at most {entry.at_most} "
            f"per {own.name!r}, so that records can always agree"
        )


def _refuse_unfit(what: str, entry: AgreeDeclaration, schema: Schema, other: _Side) -> None:
    """Raise ValueError for an entry with names that do not exist."""
    with refuse_errors(f"{what}: ", "", to=ValueError):
        schema.cells_where(entry.where)
        other.schema.cells_where(entry.of)
    if entry.kind == SIZES:
        _refuse_sizes(what, entry, other.schema)
        return
    idle = entry.called.keys() - {part for part, _, _ in label_parts(schema, entry.query)}
    if idle:
        raise ValueError(
            f"{what}: called has {min(idle)!r}, which is not in the query {entry.query!r}; "
            "take it out"
        )
    with refuse_errors(f"{what}: {other.name!r} ", "", to=ValueError):
        householders_of_cells(entry, schema, other.schema)


def _refuse_sizes(what: str, entry: AgreeDeclaration, other_schema: Schema) -> None:
    """Raise ValueError for a size that the other universe does not have, and for unknown or missing
    levels."""
    size, universe = entry.size or "", entry.universe
    kind = f"attribute of {universe} nor a coarsening of one"
    refuse_unknown(f"{what} has the size", [size], other_schema.known_names, kind)
    grouping = other_schema.grouping(size)
    levels, group_of_level = grouping.levels, np.array(grouping.groups)
    kind = f"level of {size!r} of {universe}"
    refuse_unknown(f"{what} has people of", entry.people, levels, kind)
    counted = group_of_level[
        other_schema.levels(grouping.attribute)[other_schema.cells_where(entry.of)]
    ]
    missing = [levels[i] for i in np.unique(counted) if levels[i] not in entry.people]
    if missing:
        raise ValueError(
            f"{what} does not say how many people the level {missing[0]!r} of {size!r} has; add it "
            "to people, with 0 where nobody lives, or leave it out by of"
        )


def compiled_companions(
    name: str, census: CensusDeclaration, schemas: Mapping[str, Schema]
) -> AgreeDeclaration | None:
    """The agreement of a universe's records with its other records, None where none is declared.

    Raises ValueError unless every release that meets it in sum leaves records that agree.
    """
    side = _Side.of(name, census, schemas)
    entries = [one for one in side.declared.agree if one.kind == ACCOMPANIED]
    if not entries:
        return None
    one, what = entries[0], f"agree {entries[0].name!r} of {name!r}"
    if len(entries) > 1:
        raise ValueError(f"agree of {name!r} may have one entry of the kind 'accompanied'")
    if one.universe != name:
        raise ValueError(f"{what} is of the kind 'accompanied'; its universe must be {name!r}")
    with refuse_errors(f"{what}: ", "", to=ValueError):
        own, companions = (side.schema.cells_where(where) for where in (one.where, one.of))
    if (own & companions).any():
        raise ValueError(f"{what} has records that are both in where and in of; part them")
    if not (companions & side.possible).any():
        raise ValueError(f"{what}: the structural zeros leave no cell of its companions")
    last = census.geography.geolevels[-1]
    _refuse_unlike_conditions(what, one.most + 1, own | companions, side, last)
    return one


def _refuse_unlike_conditions(
    what: str, size: int, either: np.ndarray, side: _Side, last: str
) -> None:
    """Raise ValueError for conditions that do not let records and companions, the cells `either`
    (n_cells,), be exchanged, or not fill areas by groups of `size`."""
    name, declared, schema = side.name, side.declared, side.schema
    wholes = "on these and their companions together, or on none of them"
    for bound, cells in side.bounded():
        is_multiple = bound.at_most is None or bound.at_most % size == 0
        is_whole = np.array_equal(cells, either) and not bound.at_least and is_multiple
        if (cells & either).any() and not is_whole:
            raise ValueError(
                f"{what} needs the bound {bound.name or bound.query!r} {wholes}, without "
                f"at_least, and its at_most a multiple of {size}, one more than the agreement's"
            )
    for query, geolevel in side.invariants:
        if np.unique(marginal_query(schema, query).row_of_cell[either]).size > 1:
            raise ValueError(f"{what} needs the invariant {query!r} {wholes}")
        if geolevel == last:
            raise ValueError(
                f"{what} needs {name!r} without the invariant {query!r} in the finest areas, which "
                "may have records without any to accompany them"
            )
    terms = [term for one in declared.relations for term in (*one.left, *one.right)]
    others = [term.where for term in terms if term.universe in (None, name)]
    others += [held.where for held in declared.held_to]
    others += [one.where for one in declared.agree if one.kind != ACCOMPANIED]
    if any((schema.cells_where(where) & either).any() for where in others):
        raise ValueError(
            f"{what} cannot be combined with relations, held_to and other entries of agree on the "
            "same records, so that records can always agree; take them out"
        )


class _Solvable:
    """Conditions on a declaration under which every release of the earlier universe leaves a
    solution."""

    def __init__(
        self, agreements: Sequence[AgreeDeclaration], own: _Side, other: _Side, last: str
    ) -> None:
        self.own, self.other, self.last = own, other, last
        self.what = f"agree {' and '.join(repr(one.name) for one in agreements)} of {own.name!r}"
        types = agreeing_types(agreements, own.schema)
        assert types is not None
        self.types = types

    def refuse_what_is_not(self) -> None:
        """Raise ValueError with what is missing, or with a declaration that must be absent."""
        if self.own.declared.relations or self.own.declared.held_to:
            raise ValueError(
                f"{self.what} cannot be combined with relations and held_to, so that records can "
                "always agree; take them out"
            )
        self._refuse_cells()
        self._refuse_invariants()
        self._refuse_bounds()

    def _refuse_cells(self) -> None:
        """Householders are among the people, every type has a possible cell, and wherever a record
        is counted for a householder, a person fits in."""
        types, own, other = self.types, self.own, self.other
        householders, sizes = types.householders, types.sizes
        if (
            sizes is not None
            and (types.is_householder & ~own.schema.cells_where(sizes.where)).any()
        ):
            raise ValueError(
                f"{self.what} counts householders who are not among the people of "
                f"{sizes.name!r}; let its where have them, too"
            )
        for number in range(1, types.n_types):
            if not (own.possible & (types.label == number)).any():
                is_answer = number <= types.answers.size
                among = "an answer of the" if is_answer else "people other than"
                raise ValueError(
                    f"{self.what} needs {among} householders for which the structural zeros leave "
                    "no cell; take one of them out"
                )
        if householders is None or sizes is None:
            return
        _, most = people_of_cells(sizes, other.schema)
        empty = other.schema.cells_where(householders.of) & (most == 0) & other.possible
        if empty.any():
            raise ValueError(
                f"{self.what}: {householders.name!r} counts {other.name} in which {sizes.name!r} "
                "has nobody; leave them out by its of, or declare that there are none by a "
                "structural zero"
            )

    def _refuse_invariants(self) -> None:
        """No exact answers but, for householders alone, the number of records in every area, below
        which the earlier universe is held.
        """
        own, other, one = self.own, self.other, self.types.householders
        if not own.invariants:
            return
        if one is None or self.types.sizes is not None or own.invariants != [(TOTAL, self.last)]:
            query, geolevel = own.invariants[0]
            raise ValueError(
                f"{self.what} needs {own.name!r} without the invariant {query!r} at {geolevel!r}, "
                f"which the noise of {other.name!r} could contradict; take it out, or declare a "
                "relation in place of agree, which may fail"
            )
        if not other.is_bounded(other.schema.cells_where(one.of), own.name, at_most=1):
            raise ValueError(
                f"{self.what} needs a bound on these records of {other.name!r} of at most 1 per "
                f"{own.name!r}, whose number is exact, so that records can always agree"
            )

    def _refuse_bounds(self) -> None:
        """Bounds do not restrict agreeing records: they are on others alone, or wide enough for
        every count that fits into the earlier universe.
        """
        agreed = self.types.label > 0
        apart: list[str] = []
        around: list[tuple[str, np.ndarray]] = []
        for bound, cells in self.own.bounded():
            named = bound.name or f"{bound.query} per {bound.per}"
            if not (cells & agreed).any():
                apart.append(named)
                continue
            if (cells & ~agreed).any():
                around.append((named, cells))
            is_wide = (
                bound.per == self.other.name
                and bound.by is None
                and not bound.at_least
                and bound.at_most is not None
                and bound.at_most >= self._most(cells)
            )
            is_whole = not (cells & ~agreed).any() or not (agreed & ~cells).any()
            if not (is_wide and is_whole and (TOTAL, self.last) in self.other.invariants):
                raise ValueError(
                    f"{self.what} needs the bound {named!r} without at_least, at_most at least "
                    f"{self._most(cells)} per {self.other.name!r}, whose total must be exact in "
                    f"every geounit of {self.last}, on people who agree or on all of them and "
                    "others; correct it, or take it out"
                )
        crossing = any(
            (one & ~other).any() and (other & ~one).any()
            for (_, one), (_, other) in combinations(around, 2)
        )
        if around and (apart or crossing):
            raise ValueError(
                f"{self.what} can have the bound {around[0][0]!r}, on people who agree and "
                f"others, only without a bound such as {(apart or [around[-1][0]])[0]!r} on some "
                "of these others, so that records can always agree; take one of them out"
            )

    def _most(self, cells: np.ndarray) -> int:
        """The most records in some cells that agree for a record of the earlier universe."""
        types, sizes = self.types, self.types.sizes
        if sizes is None or not (cells & ~types.is_householder & (types.label > 0)).any():
            return 1
        return max(most for _, most in sizes.people.values())
