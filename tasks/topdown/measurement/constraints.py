"""Constraints that a census's declaration puts on every geounit of a spine.

An invariant is declared at a geolevel of the census and holds wherever that geolevel is on the
spine. Its units are resolved at the first geolevel of the spine whose geounits do not reach across
their borders: there the parts of a unit must be siblings, whose sum is then held. A geounit above
is made up of whole units, and its answers are their sum. Where the parts of a unit have different
parents, the estimates of one family cannot hold the sum, and the spine is refused.

An invariant may be restricted to files at its own geolevel and under its units' codes
(`InvariantDeclaration.above`), as the states' totals of the 2020 Census do, which a spine may
divide: it is resolved at that geolevel of the spine, and the sums above have a name of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from ....geography.declared import Units
from ....geography.levels import Geolevel, Spine
from ...answers.noisy import Constraint
from ...census.census import BoundedQuery, Invariant, Universe, Zero
from ...census.queries import TOTAL, Schema, incidence
from ...runs.errors import InputRefused
from ..spine.files import Shard

WHOLE, PART, FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class LevelUnits:
    """Positions of the units of an invariant among the geounits of one geolevel of a spine.

    kind : (n,) WHOLE if the geounit is made up of whole units, PART if it is a part of a unit
        that is resolved here, FREE if it is a part of a unit that was resolved above.
    unit : (n,) the unit of a part; the unit of a geounit that is exactly one; -1 for several.
    """

    kind: np.ndarray
    unit: np.ndarray

    def part(self, start: int, stop: int) -> LevelUnits:
        """The positions in the geounits `start` to `stop`."""
        return LevelUnits(self.kind[start:stop], self.unit[start:stop])


@dataclass(frozen=True, eq=False)
class UnitAnswers:
    """The exact answers of an invariant.

    of_areas : (n_areas, n_rows) int64, a unit's answers at the first of its areas, so that sums
        over areas are sums over whole units.
    answers, path : (n_units, n_rows), (n_units,) of every unit; empty where units are areas, which
        no spine divides.
    """

    of_areas: np.ndarray
    answers: np.ndarray
    path: np.ndarray

    @classmethod
    def of_units(cls, units: Units, totals: Mapping[str, Sequence[int]]) -> UnitAnswers:
        """The exact answers from the answers of every unit by its path."""
        answers = np.array([totals[path] for path in units.path.tolist()], dtype=np.int64)
        number, first = np.unique(units.number, return_index=True)
        of_areas = np.zeros((len(units.number), answers.shape[1]), dtype=np.int64)
        of_areas[first] = answers[number]
        return cls(of_areas, answers, units.path)


@dataclass(frozen=True, eq=False)
class PublicAnswers:
    """Inputs of the constraints of a universe; all of it is public.

    multiples : by bound, `(n, n_rows)` records that the bound multiplies, for some areas.
    units : the declared geounits by geolevel, for geolevels above the finest that have invariants.
    exact : by invariant; a missing one is not held.
    released : by relation, `(n_areas,)` the weighted sum of earlier universes' releases.
    held : by name, the answers `(n_areas, n_rows)` of earlier releases.
    agreed : by agreement, least and most `(n_areas, n_rows)` of the answers to its query.
    """

    multiples: Callable[[np.ndarray], Sequence[np.ndarray]]
    units: Mapping[str, Units]
    exact: Mapping[str, UnitAnswers]
    released: Mapping[str, np.ndarray]
    held: Mapping[str, sparse.csr_array]
    agreed: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


def resolved_units(
    spine: Spine, invariant: Invariant, units: Units, what: str
) -> dict[str, LevelUnits]:
    """Positions of an invariant's units at every geolevel; see the module's docstring.

    Raises InputRefused, beginning with `what`, where a unit's parts are not siblings.
    """
    if invariant.above is not None:
        return {name: listed_units(spine, invariant, units, name) for name in spine.names}
    unit = units.number[spine.block_row]
    n_units = len(units.path)
    size = np.bincount(unit, minlength=n_units)
    is_resolved = np.zeros(n_units, dtype=bool)
    found = {}
    for depth, level in enumerate(spine.geolevels):
        ancestor = spine.ancestors(level.name)
        first = np.flatnonzero(np.r_[True, ancestor[1:] != ancestor[:-1]])
        low, high = (ends.reduceat(unit, first) for ends in (np.minimum, np.maximum))
        is_inside = low == high
        reaches_out = np.zeros(n_units, dtype=bool)
        reaches_out[unit[~is_inside[ancestor]]] = True
        here = ~is_resolved & ~reaches_out
        own = np.where(is_inside, low, -1)
        is_one = is_inside & (level.n_blocks == size[np.maximum(own, 0)])
        kind = np.where(is_inside & ~is_one, np.where(here[np.maximum(own, 0)], PART, FREE), WHOLE)
        if depth:
            _refuse_parts_apart(level, kind, own, units, what)
        is_resolved |= here
        found[level.name] = LevelUnits(kind, own)
    return found


def alike(n: int, kind: int = WHOLE) -> LevelUnits:
    """Units of `n` geounits that are all of one kind, by default made up of whole units."""
    return LevelUnits(np.full(n, kind), np.full(n, -1))


def listed_kind(spine: Spine, invariant: Invariant, geolevel: str) -> int | None:
    """The kind of all geounits of a geolevel, for an invariant that is listed at its own; None at
    that geolevel itself, where units may be whole or in parts.
    """
    place, own = spine.names.index(geolevel), spine.names.index(invariant.geolevel)
    return None if place == own else WHOLE if place < own else FREE


def listed_units(spine: Spine, invariant: Invariant, units: Units, geolevel: str) -> LevelUnits:
    """Positions of the units of an invariant that is listed at its own geolevel, at a geolevel."""
    n, kind = len(spine.geolevel(geolevel)), listed_kind(spine, invariant, geolevel)
    if kind is not None:
        return alike(n, kind)
    first = np.searchsorted(spine.ancestors(geolevel), np.arange(n))
    unit = units.number[spine.block_row[first]]
    is_part = np.bincount(unit)[unit] > 1
    return LevelUnits(np.where(is_part, PART, WHOLE), unit)


def _refuse_parts_apart(
    level: Geolevel, kind: np.ndarray, own: np.ndarray, units: Units, what: str
) -> None:
    """Raise InputRefused where parts of one unit have different parents."""
    parts = np.flatnonzero(kind == PART)
    first = np.full(len(units.path), -1)
    first[own[parts[::-1]]] = level.parent[parts[::-1]]
    apart = parts[level.parent[parts] != first[own[parts]]]
    if apart.size:
        raise InputRefused(
            f"{what} cannot be held: geounits of {level.name} that make up "
            f"{units.path[own[apart[0]]]} have different parents on this spine; choose a "
            "conventional spine, or declare the invariant at a geolevel that the spine keeps whole."
        )


def resolved_invariants(
    spine: Spine, universe: Universe, units: Mapping[str, Units]
) -> dict[str, dict[str, LevelUnits]]:
    """Positions of the units of every invariant on a spine; raises InputRefused as
    `resolved_units`.

    `units` are the declared geounits by geolevel.
    """
    found = {}
    for invariant in universe.invariants:
        what = f"The invariant {invariant.name} of {universe.name}"
        if invariant.geolevel == spine.names[-1]:
            found[invariant.name] = {x.name: alike(len(x)) for x in spine.geolevels}
            continue
        if invariant.geolevel not in units:
            raise InputRefused(
                f"{what} is at {invariant.geolevel}, which is no column of the table of areas; add "
                "the column, or take it out."
            )
        found[invariant.name] = resolved_units(spine, invariant, units[invariant.geolevel], what)
    return found


def constraint_name(name: str, bound: str = "") -> str:
    """The name of a constraint in files.

    >>> constraint_name("total", "_lb")
    'total_lb_con'
    """
    return f"{name}{bound}_con"


def bound_names(bounded: BoundedQuery, schema: Schema) -> tuple[str, str]:
    """Names of the lower and of the upper bounds.

    They are on the total where the schema lacks the query's attributes.
    """
    stem = bounded.stem if bounded.is_answerable(schema) else TOTAL
    return constraint_name(stem, "_lb"), constraint_name(stem, "_ub")


def constraints_of_shard(
    spine: Spine,
    shard: Shard,
    schema: Schema,
    universe: Universe,
    zeros: Sequence[Zero],
    public: PublicAnswers,
    resolved: Mapping[str, Mapping[str, LevelUnits]],
) -> tuple[Constraint, ...]:
    """All constraints of a shard's geounits; `resolved` is from `resolved_invariants`."""
    level = spine.geolevel(shard.geolevel)
    geocode = level.geocode[shard.start : shard.stop]
    n = shard.stop - shard.start
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    rows = spine.block_row[blocks]
    geounit = spine.ancestors(shard.geolevel, blocks) - shard.start

    into = incidence(geounit, n)
    found: list[Constraint] = []

    def add_limits(names: tuple[str, str], limits: Sequence[np.ndarray | None]) -> None:
        for name, sign, values in zip(names, (">=", "<="), limits, strict=True):
            if values is not None:
                found.append(Constraint(name, sign, geocode, values))

    counted = [into @ values for values in public.multiples(rows)]
    for bounded in universe.bounded_queries:
        records = [counted[number] for number in bounded.numbers]
        add_limits(bound_names(bounded, schema), bound_values(bounded, schema, records))
    for invariant in universe.invariants:
        exact = public.exact[invariant.name]
        here = resolved[invariant.name][shard.geolevel].part(shard.start, shard.stop)
        sums = into @ exact.of_areas[rows]
        found += _exact_constraints(invariant, shard.geolevel, here, geocode, sums, exact)
    for relation in universe.relations:
        others = np.zeros((n, 1), dtype=np.int64)
        if relation.name in public.released:
            others = -(into @ public.released[relation.name][rows, None])
        name = constraint_name(relation.name)
        found.append(Constraint(name, relation.sign, geocode, others))
    for name, limits in public.agreed.items():
        names = constraint_name(name, "_lb"), constraint_name(name, "_ub")
        add_limits(names, [into @ values[rows] for values in limits])
    for name, answers in public.held.items():
        values = (into @ answers[rows]).toarray()
        found.append(Constraint(constraint_name(name), "=", geocode, values))
    nothing = np.zeros((n, 1), dtype=np.int64)
    found += [Constraint(constraint_name(zero.name), "=", geocode, nothing) for zero in zeros]
    return tuple(found)


def bound_values(
    bounded: BoundedQuery, schema: Schema, records: Sequence[np.ndarray]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Lower and upper bounds `(n, n_rows)` on a schema's answers; None where a side is open.

    `records` are the multiplied counts of each bound, `(n, n_rows)`.
    """
    found: list[np.ndarray | None] = []
    for side in ("at_least", "at_most"):
        factors = [getattr(bound, side) for bound in bounded.bounds]
        if factors[0] is None:
            found.append(None)
            continue
        values = sum(factor * own for factor, own in zip(factors, records, strict=True))
        is_answerable = bounded.is_answerable(schema)
        found.append(values if is_answerable else values.sum(axis=1, keepdims=True))
    return found[0], found[1]


def _exact_constraints(
    invariant: Invariant,
    geolevel: str,
    here: LevelUnits,
    geocode: np.ndarray,
    sums: np.ndarray,
    exact: UnitAnswers,
) -> Iterator[Constraint]:
    """An invariant's answers of whole geounits, `sums`, and of the units whose parts are here."""
    whole = np.flatnonzero(here.kind == WHOLE)
    of_units = here.unit[here.kind == PART]
    name = constraint_name(invariant.name)
    if invariant.above is not None:
        if geolevel == invariant.geolevel:
            whole, of_units = whole[:0], here.unit[here.unit >= 0]
        else:
            name = constraint_name(invariant.above)
    if whole.size:
        yield Constraint(name, "=", geocode[whole], sums[whole])
    units = np.unique(of_units)
    if units.size:
        yield Constraint(name, "=", exact.path[units], exact.answers[units])
