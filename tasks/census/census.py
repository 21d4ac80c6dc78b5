"""Compiles the declaration of a census into the objects that all stages use.

Raises ValueError for errors within the declaration, and names the key: unknown names, levels in no
group or in two, relations to universes that are declared later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..runs.errors import refuse_errors
from ..runs.files import read_declared
from ..runs.names import FileName, Label, refuse_unknown
from ..tables.formats import TextFormat
from .agreements import compiled_agreements, compiled_companions
from .attribute_declarations import AgreeDeclaration, Part, Where
from .compiled_schemas import (
    Relation,
    check_table,
    compiled_coarsening,
    compiled_relation,
    compiled_schema,
    declared_formats,
    refuse_later_universe,
)
from .declarations import (
    BoundDeclaration,
    CensusDeclaration,
    CensusGeography,
    ContributionDeclaration,
    CountedDeclaration,
    HeldToDeclaration,
    InvariantDeclaration,
    StructuralZeroDeclaration,
    UniverseDeclaration,
)
from .influence import (
    OCCUPANTS,
    OWN,
    STEP,
    Graph,
    InfluencePath,
    Norms,
    Reach,
    graph_of,
    norms_of,
    refuse_uncharged,
)
from .queries import (
    DETAILED,
    TOTAL,
    MarginalQuery,
    Schema,
    counted_rows,
    has_attributes,
    marginal_query,
)
from .recodes import CodeSet, Recode, compiled_recode

PRESETS = Path(__file__).parent / "presets"

Named = TypeVar("Named", bound=Part)


class Zero(StructuralZeroDeclaration):
    """A declared structural zero; every one has a name."""

    name: Label


class Invariant(InvariantDeclaration):
    """A declared invariant; every one has a name."""

    name: Label


class Bound(BoundDeclaration):
    """Declared bounds; all have names."""

    name: Label


@dataclass(frozen=True)
class BoundedQuery:
    """Bounds of one name, on different answers to one query; files list them as one constraint.

    stem : the beginning of the constraint's names.
    numbers : positions of the bounds in `Universe.bounds`.
    """

    stem: str
    query: str
    numbers: tuple[int, ...]
    bounds: tuple[Bound, ...]

    def is_answerable(self, schema: Schema) -> bool:
        """Whether a schema has the attributes of the query; if not, the bounds are on the total."""
        return self.query in (TOTAL, DETAILED) or has_attributes(schema, self.query.split(" * "))

    def query_in(self, schema: Schema) -> MarginalQuery:
        """The query in a schema; the total if the query is not answerable."""
        return marginal_query(schema, self.query if self.is_answerable(schema) else TOTAL)

    def cells_in(self, schema: Schema) -> np.ndarray:
        """Mask `(n_cells,)` of the cells that the bounded answers count."""
        if not self.is_answerable(schema):
            return np.ones(schema.n_cells, dtype=bool)
        return np.any([schema.cells_where(bound.where) for bound in self.bounds], axis=0)


class Held(HeldToDeclaration):
    """Answers held to the released counts of another universe or run, with a name and defaults."""

    name: Label
    universe: FileName
    of: Where


@dataclass(frozen=True)
class Universe:
    """A compiled universe.

    full_schema : the schema with the further attributes.
    rows : by column, the codes of the rows that belong to the universe.
    """

    name: str
    schema: Schema
    full_schema: Schema
    recodes: Mapping[str, Recode]
    declared: UniverseDeclaration
    rows: Mapping[str, CodeSet]
    zeros: tuple[Zero, ...]
    invariants: tuple[Invariant, ...]
    bounds: tuple[Bound, ...]
    relations: tuple[Relation, ...]
    held: tuple[Held, ...]
    graph: Graph
    agreements: tuple[AgreeDeclaration, ...] = ()
    accompanied: AgreeDeclaration | None = None
    """The agreement among the records of this universe; `agreements` are with other universes."""

    @property
    def contributions(self) -> Mapping[str, ContributionDeclaration]:
        """By table: how many records a person may have."""
        return self.graph.contributions

    @property
    def paths(self) -> tuple[InfluencePath, ...]:
        """The paths by which its records read tables."""
        return self.graph.paths[self.name]

    @property
    def own_path(self) -> InfluencePath:
        """The path to its own table."""
        return next(path for path in self.paths if path.kind == OWN)

    @property
    def occupant_paths(self) -> Mapping[str, InfluencePath]:
        """The paths to its occupants, by their names."""
        return {path.name: path for path in self.paths if path.kind == OCCUPANTS}

    @property
    def step_paths(self) -> tuple[InfluencePath, ...]:
        """The paths to the tables of its steps, in their order."""
        return tuple(path for path in self.paths if path.kind == STEP)

    @cached_property
    def reaches(self) -> tuple[Reach, ...]:
        """By input table, how many records of this universe one change of the table changes."""
        return self.graph.reaches(self.name)

    @property
    def held_to_releases(self) -> tuple[Held, ...]:
        """The entries of `held_to` that name an earlier release."""
        return tuple(held for held in self.held if held.release is not None)

    @property
    def held_to_universes(self) -> tuple[Held, ...]:
        """The entries of `held_to` that name an earlier universe of the same run."""
        return tuple(held for held in self.held if held.release is None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The universes of the same run that must have been estimated before this one."""
        related = [side.universe for relation in self.relations for side in relation.others]
        related += [agreement.universe for agreement in self.agreements]
        return tuple(dict.fromkeys([*related, *(held.universe for held in self.held_to_universes)]))

    @property
    def described_by(self) -> str | None:
        """The later universe that adds columns to the released records, if there is one."""
        microdata = self.declared.microdata
        described = None if microdata is None else microdata.described_by
        return None if described is None else described.universe

    @property
    def charge(self) -> Norms:
        """Norms of the largest change that the ledger charges."""
        return norms_of(reach for reach in self.reaches if reach.is_charged)

    @property
    def stated(self) -> Norms:
        """Norms of the largest change, charged or only stated in certificates."""
        return norms_of(self.reaches)

    @property
    def bounded_queries(self) -> tuple[BoundedQuery, ...]:
        """The bounds, grouped by name as files list them."""
        together: dict[str, list[int]] = {}
        names = [bound.name for bound in self.declared.bounds]
        for number, bound in enumerate(self.bounds):
            is_shared = bound.name in names and names.count(bound.name) > 1
            together.setdefault(bound.name if is_shared else f"bound_{number}", []).append(number)
        found = []
        for stem, numbers in together.items():
            bounds = tuple(self.bounds[number] for number in numbers)
            found.append(BoundedQuery(stem, bounds[0].query, tuple(numbers), bounds))
        return tuple(found)

    @property
    def counted(self) -> CountedDeclaration:
        """The count that maps and predicted deviations show."""
        return self.declared.counted or CountedDeclaration(text=f"number of {self.name}")


@dataclass(frozen=True)
class Census:
    """A compiled declaration."""

    declared: CensusDeclaration
    universes: Mapping[str, Universe]
    formats: Mapping[str, TextFormat | None]
    """How the files of the input tables are written, by table; None if not declared."""

    @property
    def geography(self) -> CensusGeography:
        """The table of areas, and the geolevels that its columns make."""
        return self.declared.geography

    @property
    def without_agreements(self) -> Census:
        """The census without agreements between records."""
        universes = {
            name: replace(universe, agreements=(), accompanied=None)
            for name, universe in self.universes.items()
        }
        return replace(self, universes=universes)

    @property
    def follows_block_rules(self) -> bool:
        """Whether its areas are blocks of 2020: their geocodes are digits that determine every
        geolevel, those without an address are in no spine, addresses are public, spines have the
        AIAN branch, measurements have a published layout, and no cells are tied by relations.
        """
        return self.geography.rules is not None

    @property
    def code_column(self) -> str | None:
        """The column with codes of areas other than their geocodes, if there is one."""
        return None if self.follows_block_rules else self.geolevels[-1]

    @property
    def geolevels(self) -> tuple[str, ...]:
        """The declared geolevels, root first."""
        return self.geography.geolevels

    @property
    def area_word(self) -> str:
        """Word for an area of the last geolevel in sentences."""
        return self.geography.area_word or "area"

    @property
    def last_geolevel(self) -> str:
        """Word for the last geolevel in tables: as in sentences, or else its name."""
        return self.geography.area_word or self.geolevels[-1]

    @property
    def input_tables(self) -> tuple[str, ...]:
        """Names of the tables that the input must contain."""
        return tuple(dict.fromkeys([*self.formats, *self.earlier_releases]))

    @property
    def optional_tables(self) -> tuple[str, ...]:
        """Names of the optional tables of the input."""
        tables = (members.table for members in self.declared.members.values())
        return tuple(dict.fromkeys(name for name in tables if name not in self.formats))

    @property
    def earlier_releases(self) -> tuple[str, ...]:
        """Names under `[input]` of the earlier releases that constrain universes."""
        held = [one for universe in self.universes.values() for one in universe.held]
        return tuple(dict.fromkeys(one.release for one in held if one.release is not None))

    def schema(self, universe: str, attributes: Sequence[str] | None = None) -> Schema:
        """Return the schema of a universe, or of some of its attributes.

        Raises ValueError for an attribute that it does not have.
        """
        found = self.universes[universe]
        if attributes is None:
            return found.schema
        known = found.full_schema.attributes
        refuse_unknown("attributes name", attributes, known, f"attribute of {universe}")
        return found.full_schema.of(attributes)


@cache
def preset_census(name: str) -> Census:
    """Return the census of a preset; raise ValueError if the name is unknown."""
    file = PRESETS / f"{name}.toml"
    if not file.exists():
        known = ", ".join(sorted(entry.stem for entry in PRESETS.glob("*.toml")))
        raise ValueError(f"names no census {name!r}; there are {known}")
    table = read_declared(file)
    return compiled(CensusDeclaration.model_validate(table))


def compiled(declared: CensusDeclaration) -> Census:
    """Compile a declaration into a census; raise ValueError for an invalid declaration."""
    recodes = {
        name: compiled_recode(name, attribute, rounds_down=declared.has_free_layout)
        for name, attribute in declared.attributes.items()
    }
    coarsenings = tuple(
        compiled_coarsening(name, entry, recodes) for name, entry in declared.coarsenings.items()
    )
    for name in set(declared.coarsenings) & set(declared.attributes):
        pair = {name, declared.coarsenings[name].attribute}
        if any(pair <= set(universe.attributes) for universe in declared.universes.values()):
            raise ValueError(f"{name!r} is both an attribute and a coarsening; rename one")
    schemas = {
        name: compiled_schema(name, universe, recodes, coarsenings)
        for name, universe in declared.universes.items()
    }
    columns = {
        name: [
            *(c for attribute in schemas[name].attributes for c in recodes[attribute].columns),
            *universe.where,
        ]
        for name, universe in declared.universes.items()
    }
    graph = graph_of(declared, columns)
    universes = {}
    for name, universe in declared.universes.items():
        universes[name] = _universe(name, universe, declared, schemas, recodes, graph)
    for compiled_universe in universes.values():
        _check_description(compiled_universe, universes)
    refuse_uncharged(declared, graph)
    below = declared.geography.geolevels[1:]
    kind = "geolevel below the root"
    refuse_unknown("census.geography.columns has", declared.geography.columns, below, kind)
    for table in declared.tables:
        check_table(table, declared, schemas)
    for level in declared.summary_levels:
        what = f"summary level {level.name!r} has the part"
        refuse_unknown(what, level.parts, declared.code_parts, "key of code_parts")
    for quantity in declared.quantities:
        what = f"quantity {quantity.name!r} is of"
        refuse_unknown(what, [quantity.universe], schemas, "universe")
        schemas[quantity.universe].cells_where(quantity.where)
    for sentence in declared.certificate:
        what = "a sentence of the certificate"
        refuse_unknown(f"{what} is of", [sentence.universe], schemas, "universe")
        about = universes[sentence.universe]
        known = (*about.full_schema.attributes, *(one.name for one in about.invariants))
        kind = f"attribute or invariant of {about.name}"
        refuse_unknown(f"{what} names", (*sentence.holds, *sentence.lacks), known, kind)
    return Census(declared, universes, declared_formats(declared, graph))


def _universe(
    name: str,
    declared: UniverseDeclaration,
    census: CensusDeclaration,
    schemas: Mapping[str, Schema],
    recodes: Mapping[str, Recode],
    graph: Graph,
) -> Universe:
    full = schemas[name]
    schema = full.of(declared.attributes)
    where = f"universe {name!r}"
    geolevels = census.geography.geolevels
    what = f"{where} has the identity"
    refuse_unknown(what, declared.identity, full.attributes, "attribute of it")
    for step in declared.steps:
        if step.table in declared.occupants:
            raise ValueError(
                f"{where} has occupants named as the table {step.table!r}; rename them"
            )
    zeros = tuple(
        _named(Zero, zero, f"zero_{number}")
        for number, zero in enumerate(declared.structural_zeros, 1)
    )
    for zero in zeros:
        full.cells_where(zero.where)
    if declared.counted is not None:
        full.cells_where(declared.counted.where)
    invariants = []
    for entry in declared.invariants:
        refuse_unknown(f"{where} has an invariant at", [entry.geolevel], geolevels, "geolevel")
        marginal_query(schema, entry.query)
        invariants.append(_named(Invariant, entry, f"{entry.query} at {entry.geolevel}"))
    bounds = tuple(_bound(where, entry, schema, schemas) for entry in declared.bounds)
    _check_shared_names(where, declared.bounds, schema)
    relations = tuple(
        compiled_relation(name, entry, census, schemas) for entry in declared.relations
    )
    held = tuple(_held(name, entry, census, schemas) for entry in declared.held_to)
    for number, one in enumerate(held):
        if any(one == other.model_copy(update={"name": one.name}) for other in held[:number]):
            raise ValueError(f"{where} has the same held_to answers twice as {one.name!r}")
    exact = (zeros, invariants, relations, held)
    names = [entry.name for entries in exact for entry in entries]
    if len(set(names)) < len(names):
        twice = next(entry for entry in names if names.count(entry) > 1)
        raise ValueError(f"{where} declares {twice!r} twice; give one of them another name")
    return Universe(
        name,
        schema,
        full,
        {attribute: recodes[attribute] for attribute in full.attributes},
        declared,
        {column: CodeSet.of(codes) for column, codes in declared.where.items()},
        zeros,
        tuple(invariants),
        bounds,
        relations,
        held,
        graph,
        compiled_agreements(name, census, schemas),
        compiled_companions(name, census, schemas),
    )


def _bound(
    where: str, entry: BoundDeclaration, schema: Schema, schemas: Mapping[str, Schema]
) -> Bound:
    refuse_unknown(f"a bound of {where} is per", [entry.per], schemas, "universe")
    n_rows = marginal_query(schema, entry.query).n_rows
    schema.cells_where(entry.where)
    if entry.by is not None and marginal_query(schemas[entry.per], entry.by).n_rows != n_rows:
        raise ValueError(
            f"{where} has a bound on {entry.query!r} by {entry.by!r} of {entry.per}, which do not "
            "have the same number of answers"
        )
    low, high = entry.at_least, entry.at_most
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"{where} has a bound on {entry.query!r} of at_least {low} and at_most {high}"
        )
    return _named(Bound, entry, f"{entry.query} per {entry.per}")


def _check_shared_names(where: str, bounds: Sequence[BoundDeclaration], schema: Schema) -> None:
    """Refuse bounds of one name that differ in their query or sides, or share an answer."""
    for number, bound in enumerate(bounds):
        for other in bounds[:number] if bound.name is not None else ():
            if other.name != bound.name:
                continue
            row = marginal_query(schema, bound.query).row_of_cell
            rows = [set(row[schema.cells_where(one.where)].tolist()) for one in (bound, other)]
            sides = [(one.at_least is None, one.at_most is None) for one in (bound, other)]
            if other.query != bound.query or rows[0] & rows[1] or sides[0] != sides[1]:
                raise ValueError(
                    f"{where} has two bounds {bound.name!r}, which are not the same sides of "
                    "different answers to one query; give one of them another name"
                )


def _held(
    name: str,
    entry: HeldToDeclaration,
    census: CensusDeclaration,
    schemas: Mapping[str, Schema],
) -> Held:
    schema = schemas[name].of(census.universes[name].attributes)
    marginal_query(schema, entry.query)
    schema.cells_where(entry.where)
    of = entry.where if entry.of is None else entry.of
    if entry.release is None:
        what, other = f"held_to of {name!r}", entry.universe or name
        refuse_later_universe(what, other, name, schemas)
        other_schema = schemas[other].of(census.universes[other].attributes)
        with refuse_errors(f"{what}: {other!r} ", "", to=ValueError):
            counted_rows(schema, other_schema, entry.query, entry.where, of)
    named = f"{entry.query} of {entry.release or entry.universe}"
    return _named(Held, entry, named, universe=entry.universe or name, of=of)


def _named(kind: type[Named], declared: Part, name: str, **further: Any) -> Named:
    """Convert a declaration to `kind`; `name` is the default for the name."""
    values = {**dict(declared), **further}
    return kind.model_construct(**{**values, "name": values["name"] or name})


def _check_description(universe: Universe, universes: Mapping[str, Universe]) -> None:
    """Refuse `described_by` with a universe that has no `held_to` on this one, or with codes that
    do not fit the levels."""
    microdata = universe.declared.microdata
    if microdata is None or microdata.described_by is None:
        return
    description, what = microdata.described_by, f"described_by of {universe.name!r}"
    refuse_unknown(f"{what} is of", [description.universe], universes, "universe")
    other = universes[description.universe]
    if all(held.universe != universe.name for held in other.held_to_universes):
        raise ValueError(
            f"{what}: {description.universe!r} is not held to {universe.name!r}; add a held_to"
        )
    for column in description.columns:
        query = marginal_query(other.schema, column.attribute or "")
        if column.codes is not None and len(column.codes) != query.n_rows:
            raise ValueError(
                f"{what}: the column {column.name} has another number of codes than levels"
            )
