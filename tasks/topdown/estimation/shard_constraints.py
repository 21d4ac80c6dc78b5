"""The constraints of a shard in the solver's terms, family by family.

The solvers directly support bounds and exact answers of one query, whose rows are the cells' types,
and exact totals of all children. Everything else is rows of a linear program (`LinearRows`): a
family with such rows is no network, and HiGHS rounds it.

From declarations and public records alone: the types that areas can have, and exact totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from ....geography.declared import Units
from ....geography.levels import Spine
from ...answers.noisy import Constraint, read_constraints
from ...census.agreements import AgreeingTypes, agreeing_types
from ...census.attribute_declarations import PRESENCE
from ...census.census import Held, Invariant, Universe
from ...census.queries import TOTAL, MarginalQuery, Schema, incidence, marginal_query
from ..measurement.constraints import (
    FREE,
    PART,
    LevelUnits,
    bound_names,
    bound_values,
    constraint_name,
    resolved_invariants,
)
from ..measurement.public_answers import held_invariants, read_implied_types, shard_units
from ..paths import constraints_file
from ..settings import TopdownSettings
from ..spine.files import RunUniverse, Shard
from .problem import NO_BOUND, LinearRows, is_refined


class ShardConstraints:
    """Constraints of a shard's geounits; see `estimation.problem.SiblingProblem`.

    geocode : (n,) of the geounits.
    type_of_cell : (n_cells,). lower, upper : (n, T). type_is_possible : (n, T) types that
    neither bounds nor held answers exclude: whatever a geounit can have, the one above can.
    total : (n,) exact totals, -1 if unknown. group, group_total : (n,) unit that a
    geounit is a part of, -1 for none, and the units' exact totals. rows : of all cells and the
    shard's geounits.
    """

    def __init__(self, universe: RunUniverse, shard: Shard, *, with_held: bool = True) -> None:
        """From a shard's constraints file. Types that held answers and bounds determine replace
        the types of a single query; see `workload.implied_types`.

        Without `with_held`, constraints are facts of the people alone, excluding answers fixed by
        an earlier release, since they have that release's noise, and limits that follow from
        another universe's release.
        """
        declared, schema, units = universe.declared, universe.schema, shard_units(universe, shard)
        if not with_held:
            declared = replace(declared, held=(), agreements=(), accompanied=None)
        declared = held_invariants(declared, units)
        level = universe.spine.geolevel(shard.geolevel)
        self.shard, self.geocode = shard, level.geocode[shard.start : shard.stop]
        self._path = constraints_file(universe.run, universe.name, shard.geolevel, shard.name)
        self._schema, self._universe = schema, declared
        self._found = read_constraints(self._path, self.geocode)
        self._typed = typed_query(declared, schema)
        query = marginal_query(schema, self._typed)
        implied = read_implied_types(universe) if declared.held else None
        self.type_of_cell = query.row_of_cell
        n = len(self.geocode)
        self._every = np.arange(n)
        self.lower = np.zeros((n, query.n_rows), dtype=np.int64)
        self.upper = np.full((n, query.n_rows), NO_BOUND, dtype=np.int64)
        self.total = np.full(n, -1, dtype=np.int64)
        self.group = np.full(n, -1, dtype=np.int64)
        self.group_total = np.zeros(0, dtype=np.int64)
        self.rows: list[LinearRows] = []
        self._is_exact, self._has_own_types = implied is not None, implied is None
        if implied is not None:
            self.type_of_cell, answers = implied
            self.lower = self.upper = _sums_of_blocks(universe.spine, shard, answers)
        self._agreeing = agreeing_types(declared.agreements, schema)
        if self._agreeing is not None:
            self.type_of_cell, self._has_own_types = self._agreeing.label, False
            self.lower, self.upper = self._limits_of_types(self._agreeing)
        for held in sorted(declared.held, key=lambda one: not self._is_of_types(one)):
            self._add_held(held)
        self._add_bounds()
        self._add_agreements()
        self.type_is_possible = self.upper > 0
        for invariant in declared.invariants:
            self._add_invariant(invariant, *units[invariant.name])
        self._add_relations()
        del self._found  # It is large, and constraints of all shards of a geolevel may be held.

    def totals(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Groups of the siblings `start` to `stop`, and the exact total of each; None without."""
        total, group = self.total[start:stop], self.group[start:stop]
        if ((total < 0) & (group < 0)).any():
            return None
        if (total >= 0).all():
            return np.arange(stop - start), total
        key = np.where(total >= 0, np.arange(stop - start), (stop - start) + group)
        distinct, first, position = np.unique(key, return_index=True, return_inverse=True)
        value = np.where(total >= 0, total, self.group_total[np.maximum(group, 0)])
        return position.reshape(-1), value[first]

    @property
    def known_totals(self) -> np.ndarray | None:
        """Exact totals `(n,)` of the geounits, if all are known."""
        return None if (self.total < 0).any() else self.total

    @property
    def known_sums(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The unit `(n,)` of every geounit, and the units' exact totals, where some are in parts
        and all are known.
        """
        return self.totals(0, len(self.total)) if (self.group >= 0).any() else None

    def linear_rows(self, start: int, stop: int, support: np.ndarray) -> tuple[LinearRows, ...]:
        """Further constraints on the siblings `start` to `stop`, on the cells of their support."""
        found = []
        if self.totals(start, stop) is None:
            ones = sparse.csr_array(np.ones((1, support.size)))
            total, group = self.total[start:stop], self.group[start:stop]
            if (total >= 0).any():
                child = np.where(total >= 0, np.arange(stop - start), -1)
                found.append(LinearRows("total", ones, child, total[:, None], total[:, None]))
            if (group >= 0).any():
                values = self.group_total[:, None]
                found.append(LinearRows("total", ones, group, values, values))
        for rows in self.rows:
            of_children = rows.group_of_child[start:stop]
            if (of_children >= 0).any():
                used = np.unique(of_children[of_children >= 0])
                group = np.where(of_children >= 0, np.searchsorted(used, of_children), -1)
                matrix = sparse.csr_array(rows.matrix[:, support])
                bounds = rows.lower[used], rows.upper[used]
                found.append(LinearRows(rows.name, matrix, group, *bounds))
        return tuple(found)

    def _limits_of_types(self, types: AgreeingTypes) -> tuple[np.ndarray, np.ndarray]:
        """Limits `(n, T)` on householders by answer, and on the other people; see
        `measurement.agreements`.
        """
        n = len(self._every)
        lower = np.zeros((n, types.n_types), dtype=np.int64)
        upper = np.full((n, types.n_types), NO_BOUND, dtype=np.int64)
        householders = np.zeros(n, dtype=np.int64)
        if types.householders is not None:
            values = self._found[constraint_name(types.householders.name, "_lb"), ">="].values
            of_types = slice(1, 1 + types.answers.size)
            lower[:, of_types] = upper[:, of_types] = values[:, types.answers]
            householders = values[:, types.answers].sum(axis=1)
        if types.sizes is not None:
            for side, ending, sign in ((lower, "_lb", ">="), (upper, "_ub", "<=")):
                values = self._found[constraint_name(types.sizes.name, ending), sign].values
                side[:, -1] = values[:, 0] - householders
        return lower, upper

    def _follows_from_types(
        self, label: np.ndarray, n_rows: int, lower: np.ndarray, upper: np.ndarray
    ) -> bool:
        """Whether limits `(n, n_rows)` on rows, by the row `(n_cells,)` of every cell, add nothing
        to the types' limits; numbers from `n_rows` on denote no row.
        """
        n_types = self.lower.shape[1]
        cells = np.zeros((n_types, n_rows + 1), dtype=np.int64)
        np.add.at(cells, (self.type_of_cell, np.minimum(label, n_rows)), 1)
        meets = cells[:, :n_rows] > 0
        is_inside = meets & (cells.sum(axis=1, keepdims=True) == cells[:, :n_rows])
        is_open = (self.upper == NO_BOUND).astype(np.int64) @ meets > 0
        most = np.where(self.upper == NO_BOUND, 0, self.upper) @ meets
        least = self.lower @ is_inside
        return bool(((~is_open & (most <= upper)) | (upper == NO_BOUND)).all()) and bool(
            (least >= lower).all()
        )

    def _limit(self, lower: np.ndarray, upper: np.ndarray) -> None:
        """Bound the numbers of records of the types by further limits, each (n, T)."""
        self.lower, self.upper = np.maximum(self.lower, lower), np.minimum(self.upper, upper)

    def _is_of_types(self, held: Held) -> bool:
        """Whether held answers are exact numbers of records of every type."""
        return self._has_own_types and not held.where and held.query == self._typed != TOTAL

    def _add_held(self, held: Held) -> None:
        """Answers of an earlier release, available for every geounit."""
        own = self._found[constraint_name(held.name), "="]
        if self._is_of_types(held):
            self._limit(own.values, own.values)
            self._is_exact = True
        elif held.query == TOTAL and not held.where:
            self.total = own.values[:, 0]
        else:
            inside = self._schema.cells_where(held.where)
            self._add_rows(held.name, held.query, inside, self._every, own.values, own.values)

    def _add_rows(
        self,
        name: str,
        query: str,
        inside: np.ndarray | None,
        group: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
    ) -> None:
        """Rows of a query, on the cells `inside`; none where exact answers of the types decide
        them, which ingest has compared.
        """
        asked = marginal_query(self._schema, query)
        row = asked.row_of_cell
        label = row if inside is None else np.where(inside, row, row.max() + 1)
        is_of_each = np.array_equal(group, self._every)
        if self._agreeing is not None and is_of_each:
            if self._follows_from_types(label, asked.n_rows, lower, upper):
                return
        if not (self._is_exact and is_refined(label, self.type_of_cell)):
            matrix = asked.matrix.astype(np.float64)
            if inside is not None:
                matrix = sparse.csr_array(matrix.multiply(inside[None, :]))
            self.rows.append(LinearRows(name, matrix, group, lower, upper))

    def _add_bounds(self) -> None:
        """Bounds on whole types; bounds on some cells of a type are rows."""
        for bounded in self._universe.bounded_queries:
            query, inside = bounded.query_in(self._schema), bounded.cells_in(self._schema)
            of_lower, of_upper = bound_names(bounded, self._schema)
            lower, upper = self._found.get((of_lower, ">=")), self._found.get((of_upper, "<="))
            shape = len(self._every), query.n_rows
            low = np.zeros(shape, dtype=np.int64) if lower is None else lower.values
            high = np.full(shape, NO_BOUND, dtype=np.int64) if upper is None else upper.values
            aligned = None
            if self._has_own_types and query.name == self._typed:
                aligned = aligned_rows(inside, query)
            if aligned is None:
                name = bounded.bounds[0].name
                self._add_rows(name, query.name, inside, self._every, low, high)
                continue
            is_aligned = np.isin(np.arange(query.n_rows), aligned)
            self._limit(np.where(is_aligned, low, 0), np.where(is_aligned, high, NO_BOUND))

    def _add_agreements(self) -> None:
        """Least and most of answers that agree with an earlier universe."""
        for agreement in self._universe.agreements if self._agreeing is None else ():
            low = self._found[constraint_name(agreement.name, "_lb"), ">="].values
            high = self._found[constraint_name(agreement.name, "_ub"), "<="].values
            if self._has_own_types and agreement.query == self._typed:
                self._limit(low, high)
            else:
                self._add_rows(agreement.name, agreement.query, None, self._every, low, high)

    def _add_invariant(self, invariant: Invariant, here: LevelUnits, paths: np.ndarray) -> None:
        """Exact answers of geounits, and of units, by their paths, that are listed here: in parts,
        or all.
        """
        name = constraint_name(invariant.name)
        own = self._found.get((name, "="))
        if invariant.above is not None:
            own = self._found.get((constraint_name(invariant.above), "="))
        is_listed = (here.kind == PART) | ((invariant.above is not None) & (here.unit >= 0))
        listed = np.unique(here.unit[is_listed])
        position = np.full(len(paths) + 1, -1)
        position[listed] = np.arange(listed.size)
        place = np.where(is_listed, position[here.unit], -1)
        of_units = np.zeros((0, 1), dtype=np.int64)
        if listed.size:
            in_file = read_constraints(self._path, paths[listed]).get((name, "="))
            if in_file is None:
                return
            of_units = in_file.values
        if marginal_query(self._schema, invariant.query).n_rows == 1:
            self._add_total(invariant, own, place, of_units)
        else:
            self._add_answers(invariant, own, place, of_units)

    def _add_total(
        self, invariant: Invariant, own: Constraint | None, place: np.ndarray, of_parts: np.ndarray
    ) -> None:
        """Exact totals; of units in parts, the first invariant's are totals of groups."""
        if own is not None:
            is_new = (self.total < 0) & _constrained_mask(own)
            self.total = np.where(is_new, own.values[:, 0], self.total)
        if of_parts.size and not self.group_total.size:
            self.group, self.group_total = place, of_parts[:, 0]
        elif of_parts.size:
            self._add_rows(invariant.name, TOTAL, None, place, of_parts, of_parts)

    def _add_answers(
        self, invariant: Invariant, own: Constraint | None, place: np.ndarray, of_parts: np.ndarray
    ) -> None:
        """Exact answers of several rows: of the types' query as bounds, of others as rows."""
        name, query = invariant.name, invariant.query
        if own is not None and self._has_own_types and invariant.query == self._typed:
            held = _constrained_mask(own)[:, None]
            self._limit(np.where(held, own.values, 0), np.where(held, own.values, NO_BOUND))
        elif own is not None:
            whole = np.where(_constrained_mask(own), self._every, -1)
            self._add_rows(name, query, None, whole, own.values, own.values)
        if of_parts.size:
            self._add_rows(name, query, None, place, of_parts, of_parts)

    def _add_relations(self) -> None:
        """Linear relations, as rows of one weighted sum."""
        for relation in self._universe.relations:
            value = self._found[constraint_name(relation.name), relation.sign].values
            low = value if relation.sign != "<=" else np.full_like(value, -NO_BOUND)
            high = value if relation.sign != ">=" else np.full_like(value, NO_BOUND)
            matrix = sparse.csr_array(relation.own[None, :].astype(np.float64))
            self.rows.append(LinearRows(relation.name, matrix, self._every, low, high))


def _sums_of_blocks(spine: Spine, shard: Shard, answers: sparse.csr_array) -> np.ndarray:
    """Answers `(n, T)` of a shard's geounits, from those of the areas of blocks."""
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    geounit = spine.ancestors(shard.geolevel, blocks) - shard.start
    into = incidence(geounit, shard.stop - shard.start)
    return np.asarray((into @ answers[spine.block_row[blocks]]).toarray())


def sums_of_level(held: Sequence[ShardConstraints]) -> tuple[np.ndarray, np.ndarray] | None:
    """The unit `(n,)` of every geounit of a geolevel, and the units' exact totals, where some are
    in parts and all are known. The parts of a unit are siblings, and so of one shard.
    """
    units: list[np.ndarray] = []
    totals: list[np.ndarray] = []
    for part in held:
        if part.known_sums is None:
            return None
        unit, of_unit = part.known_sums
        units.append(unit + sum(map(len, totals)))
        totals.append(of_unit)
    return np.concatenate(units), np.concatenate(totals)


def _constrained_mask(constraint: Constraint) -> np.ndarray:
    """Mask `(n,)` of the requested geounits with the constraint."""
    if constraint.holds is None:
        return np.ones(len(constraint.values), dtype=bool)
    return constraint.holds


def typed_query(universe: Universe, schema: Schema) -> str:
    """The query whose rows are the cells' types: the first held, bounded or exact one of several
    rows.
    """
    named = [held.query for held in universe.held if not held.where]
    named += [bounded.query_in(schema).name for bounded in universe.bounded_queries]
    named += [one.query for one in universe.agreements if one.kind == PRESENCE]
    named += [invariant.query for invariant in universe.invariants]
    return next((name for name in named if name != TOTAL), TOTAL)


def aligned_rows(inside: np.ndarray, query: MarginalQuery) -> np.ndarray | None:
    """Rows of a query whose cells are all `inside` (n_cells,); None if only some are."""
    some = query.rows_of(inside)
    rest = query.rows_of(~inside)
    return some if not np.intersect1d(some, rest).size else None


def possible_types(
    universe: Universe, schema: Schema, multiples: Sequence[np.ndarray], n_areas: int
) -> tuple[np.ndarray, np.ndarray]:
    """Type `(n_cells,)` of every cell, and `(n_areas, n_types)` bool, the types that no bound
    excludes in an area.

    `multiples` has, by bound, the records of each area that it multiplies.
    """
    typed = typed_query(universe, schema)
    types = marginal_query(schema, typed)
    type_is_possible = np.ones((n_areas, types.n_rows), dtype=bool)
    for bounded in universe.bounded_queries:
        query = bounded.query_in(schema)
        rows = aligned_rows(bounded.cells_in(schema), query) if query.name == typed else None
        _, most = bound_values(bounded, schema, [multiples[n] for n in bounded.numbers])
        if rows is not None and most is not None:
            type_is_possible[:, rows] &= most[:, rows] > 0
    return types.row_of_cell, type_is_possible


def known_totals(
    settings: TopdownSettings, universe: str, spine: Spine, units: Mapping[str, Units]
) -> dict[str, np.ndarray]:
    """The deepest geolevel where all totals, or all sums of siblings, are exact, and their numbers;
    those above it follow. Estimates of every area by itself use only the areas' own. For `units`
    see `units_of_areas`.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    declared, last = census.universes[universe], census.geolevels[-1]
    held = [
        invariant
        for invariant in declared.invariants
        if marginal_query(schema, invariant.query).n_rows == 1
        and (invariant.geolevel == last or not settings.blocks_only)
        and (invariant.above is None or invariant.geolevel in spine.names)
    ]
    totals = resolved_invariants(spine, replace(declared, invariants=tuple(held)), units).values()
    for name in reversed(spine.names):
        for of_level in totals:
            kind, unit = of_level[name].kind, of_level[name].unit
            if not (kind == FREE).any():
                return {name: np.where(kind == PART, len(kind) + unit, np.arange(len(kind)))}
    return {}
