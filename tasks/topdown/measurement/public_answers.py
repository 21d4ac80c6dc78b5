"""Exact answers of a run, read from its public files: numbers of records that bounds multiply,
answers of invariants, and answers of earlier releases.

The 2020 Census counts addresses by block (`invariants.parquet`) and persons by state; a declared
census has a column for every answer of the universes that its bounds refer to, and the answers of
its invariants by the path of each unit.

Limits on numbers of records, so that they agree with the released ones of another universe in every
finest area.

Let an area b have N(b) released records of the earlier universe (persons in households), T(b)
records of this one (housing units), which is exact, and O(b) that agree (occupied). They agree if

    O(b) <= N(b)    and    N(b) <= m O(b),

m being the most that one can have; so N(b) = 0 exactly where O(b) = 0. As O(b) is a whole number
from 0 to T(b), this is one interval,

    L(b) = ceil(N(b) / m)  <=  O(b)  <=  min(N(b), T(b)) = U(b).

It is not empty: the release holds N(b) <= m T(b), so that L(b) <= T(b), and L(b) <= N(b) as m >= 1.

Two sums must be carried up: every geounit g meets L(g) <= O(g) <= U(g), with L(g) and U(g) the sums
of L(b) and U(b) over its areas. This condition is sufficient and necessary: the sums of children
equal the parent's, whole numbers within [L(c), U(c)] add up to every whole number from the sum of
L(c) to the sum of U(c), so a parent within its interval leaves its children a solution, and one
outside leaves no solution. Inequalities between O(g) and N(g) are not enough: a county with N = O
leaves no solution if one of its blocks has more persons than units. The others of the universe are
T(c) - O(c) >= 0, because U(c) <= T(c), and add up as T and O do. By induction from the root every
area has a solution, whatever the noise.

Householders and sizes constrain people by dwellings that are released before them. An area b has

    H_r(b)  =  R_r(b)                                  householders with the answer r,
    l(b)    =  sum_s least_s D_s(b)  <=  N(b)  <=  sum_s most_s D_s(b)  =  u(b),

R_r(b) being the released dwellings with the answer r (of their householder's sex, say), and D_s(b)
the released dwellings of size s, for which least_s to most_s people are declared. As all on the
right is released, each area has numbers that are fixed, H_r(b), and one interval for the people
N(b) other than their householders H(b), the sum of all H_r(b):

    max(l(b), H(b)) - H(b)  <=  N(b) - H(b)  <=  u(b) - H(b).

It is not empty: least_s <= most_s, and where a dwelling is counted for a householder, most_s is at
least 1, so that H(b) <= u(b). The types (householders by answer, other people, everybody else) are
disjoint, and each may have every whole number in an interval of its own whatever the others have.
Sums are therefore carried up type by type, as above: a parent within the sums of its areas' limits
leaves its children a solution, one outside leaves none. A row of coefficients has become bounds on
types of cells: families remain network flows, and no integer program is needed.

In the reverse order, with people released first, D would have to follow N, and no limits on sums
do: two areas of three people each allow (in sum) three dwellings of two, and no area can be made up
of them. Which sums of D have a solution is a question of packing; sizes are therefore declared on
the people, and householders on either.

Where dwellings must agree with householders, T(b) - H(b) others are left, and H(b) <= T(b) by the
bound on the people's release.

From a run's public files to its files of constraints, and the measurements they make redundant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.declared import GEOCODE, Units, declared_units
from ....geography.levels import Spine
from ...answers.noisy import write_constraints
from ...census.agreements import (
    AgreeingTypes,
    agreeing_types,
    householders_of_cells,
    people_of_cells,
)
from ...census.census import Census, Universe
from ...census.census_input import read_multiples
from ...census.invariants import FACILITY_COLUMNS, inhabitable, read_state_totals
from ...census.queries import counted_rows, incidence, marginal_query
from ...runs.directory import RunDirectory
from ..paths import constraints_file, geography_file, held_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.build import spines_of
from ..spine.files import STATE, RunUniverse, Shard, shards_of, state_codes
from ..workload.implied_types import IMPLIED, implied_labels, implying
from .constraints import (
    WHOLE,
    LevelUnits,
    PublicAnswers,
    UnitAnswers,
    alike,
    constraints_of_shard,
    listed_kind,
    resolved_invariants,
    resolved_units,
)


def agreement(
    released: np.ndarray, total: np.ndarray, at_most: int, agrees: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and most of the answers to a query, each `(n_areas, n_rows)`, of records that agree.

    released : (n_areas,) records of the earlier universe. total : (n_areas,) exact number of this
    one's records. agrees : (n_rows,) mask of the one answer of records that agree. The others are
    free below the total.

    >>> low, high = agreement(np.array([0, 3, 9]), np.array([2, 2, 2]), 5, np.array([False, True]))
    >>> low[:, 1].tolist(), high[:, 1].tolist()
    ([0, 1, 2], [0, 2, 2])
    """
    low = np.zeros((len(total), agrees.size), dtype=np.int64)
    high = np.repeat(np.asarray(total, dtype=np.int64)[:, None], agrees.size, axis=1)
    low[:, agrees] = -(-released // at_most)[:, None]
    high[:, agrees] = np.minimum(released, total)[:, None]
    return low, high


def household_limits(
    householders: np.ndarray | None, least: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and most people of areas, `(n_areas,)` each, given their householders `(n_areas, R)`.

    >>> household_limits(np.array([[1], [2]]), np.array([0, 5]), np.array([4, 9]))
    (array([1, 5]), array([4, 9]))
    """
    if householders is None:
        return least, most
    return np.maximum(least, householders.sum(axis=1)), most


UNITS, FACILITIES = "units", "facilities"
"""Universes of the Census Edited File whose records in every block are public."""

HOUSING_UNITS = "housing_units"


def public_answers(universe: RunUniverse) -> PublicAnswers:
    """Inputs of the constraints of a universe.

    Earlier universes that its relations name must have been estimated.
    """
    public, units = read_public(universe.run), units_of_run(universe)
    exact = _exact_answers(universe, units, public)
    return PublicAnswers(
        lambda rows: frame_multiples(universe.declared, public.iloc[rows]),
        units,
        exact,
        released_sums(universe),
        read_constraining_answers(universe),
        agreed_answers(universe, exact),
    )


def read_public(run: RunDirectory) -> pd.DataFrame:
    """Public facts of the areas that a spine has, in the rows that `Spine.block_row` numbers."""
    file = invariants_file(run)
    columns = [name for name in pq.read_schema(file).names if name != GEOCODE]
    public = pq.read_table(file, columns=columns).to_pandas()
    # The spine of the 2020 Census has only inhabitable blocks; the index identifies them.
    return public[inhabitable(public)] if HOUSING_UNITS in public else public


def frame_multiples(universe: Universe, public: pd.DataFrame) -> list[np.ndarray]:
    """By bound of a universe, `(n_areas, n_rows)` records of each area that the bound multiplies;
    `public` is the frame of public facts of areas that an ingest wrote.
    """
    if HOUSING_UNITS in public:
        return _address_multiples(universe, public)
    return [read_multiples(public, universe.name, n) for n in range(len(universe.bounds))]


def units_of_areas(census: Census, spine: Spine, areas: pd.DataFrame) -> dict[str, Units]:
    """The declared geounits by geolevel, where the areas have a column for them; for the 2020
    Census the states.
    """
    if all(geolevel not in areas for geolevel in census.geolevels):
        return {STATE: _states(spine)} if STATE in spine.names else {}
    return declared_units(areas, census.geolevels)


def held_invariants(universe: Universe, held: Mapping[str, object]) -> Universe:
    """A universe with only the invariants that a run holds; `held` has their names."""
    return replace(universe, invariants=tuple(i for i in universe.invariants if i.name in held))


def units_of_run(universe: RunUniverse) -> dict[str, Units]:
    """`units_of_areas` from a run's file; reads only the geolevels' columns."""
    file, census = geography_file(universe.run), universe.settings.compiled_census
    columns = [name for name in pq.read_schema(file).names if name in census.geolevels]
    areas = pq.read_table(file, columns=columns).to_pandas()
    return units_of_areas(census, universe.spine, areas)


def _exact_answers(
    universe: RunUniverse, units: Mapping[str, Units], public: pd.DataFrame
) -> dict[str, UnitAnswers]:
    """By held invariant, its exact answers; in the 2020 Census, persons by state where they are
    declared, and housing units by block.
    """
    file, declared = state_totals_file(universe.run), universe.declared
    if HOUSING_UNITS not in public:
        totals = json.loads(file.read_text(encoding="utf-8"))[universe.name]
        return {
            invariant.name: UnitAnswers.of_units(units[invariant.geolevel], totals[invariant.name])
            for invariant in declared.invariants
        }
    found = {}
    of_states = {state: (total,) for state, total in read_state_totals(file).items()}
    for invariant in declared.invariants:
        if invariant.geolevel == universe.spine.names[-1]:
            own = public[[HOUSING_UNITS]].to_numpy()
            found[invariant.name] = UnitAnswers(own, own[:0], np.empty(0, dtype=object))
        elif of_states:
            found[invariant.name] = UnitAnswers.of_units(units[STATE], of_states)
    return found


def _address_multiples(universe: Universe, addresses: pd.DataFrame) -> list[np.ndarray]:
    facilities = addresses[list(FACILITY_COLUMNS)].to_numpy()
    none = np.zeros((len(addresses), 1), dtype=facilities.dtype)
    counted = {
        UNITS: addresses[[HOUSING_UNITS]].to_numpy(),
        FACILITIES: np.hstack([none, facilities]),
    }
    schema, found = universe.full_schema, []
    for bound in universe.bounds:
        query = marginal_query(schema, bound.query)
        rows = query.row_of_cell[schema.cells_where(bound.where)]
        found.append(counted[bound.per] * (np.bincount(rows, minlength=query.n_rows) > 0))
    return found


def _states(spine: Spine) -> Units:
    """The states of the 2020 Census among the inhabitable blocks, by FIPS code."""
    codes = state_codes(spine.geolevel(STATE).geocode)
    path, state = np.unique(codes, return_inverse=True)
    number = np.empty(spine.n_blocks, dtype=np.int64)
    number[spine.block_row] = state.reshape(-1)[spine.ancestors(STATE)]
    return Units(number, path)


def shard_units(universe: RunUniverse, shard: Shard) -> dict[str, tuple[LevelUnits, np.ndarray]]:
    """By invariant, positions of its units among a shard's geounits, and the units' paths.

    Only what the shard needs is computed: nothing for invariants in the finest areas, and only its
    own geolevel for an invariant that is listed there.
    """
    census, spine, n = universe.settings.compiled_census, universe.spine, shard.stop - shard.start
    found = {}
    for invariant in universe.declared.invariants:
        kind: int | None = None
        if invariant.geolevel == census.geolevels[-1]:
            kind = WHOLE
        elif invariant.above is not None and invariant.geolevel not in spine.names:
            continue
        elif invariant.above is not None:
            kind = listed_kind(spine, invariant, shard.geolevel)
        if kind is not None:
            found[invariant.name] = alike(n, kind), np.empty(0, dtype=object)
            continue
        units = units_of_run(universe)[invariant.geolevel]
        level = resolved_units(spine, invariant, units, invariant.name)[shard.geolevel]
        found[invariant.name] = level.part(shard.start, shard.stop), units.path
    return found


def geounits_to_units(universe: RunUniverse, shard: Shard) -> np.ndarray:
    """Number `(n,)` of geounits below each of a shard's geounits, down to those that lie in a
    single unit of every invariant; 0 for these themselves.
    """

    def has_several(units: Mapping[str, LevelUnits]) -> bool:
        return any(((one.kind == WHOLE) & (one.unit < 0)).any() for one in units.values())

    own, spine = shard_units(universe, shard), universe.spine
    if not has_several({name: units for name, (units, _) in own.items()}):
        return np.zeros(shard.stop - shard.start, dtype=np.int64)
    declared = held_invariants(universe.declared, own)
    resolved = resolved_invariants(spine, declared, units_of_run(universe))
    depth = bottom = spine.names.index(shard.geolevel)
    while has_several({one: of[spine.names[bottom]] for one, of in resolved.items()}):
        bottom += 1
    found = np.zeros(len(spine.geolevels[bottom]), dtype=np.int64)
    for above in range(bottom - 1, depth - 1, -1):
        parent, n = spine.geolevels[above + 1].parent, len(spine.geolevels[above])
        sums = np.zeros(n, dtype=np.int64)
        np.add.at(sums, parent, 1 + found)
        found = sums
    return found[shard.start : shard.stop]


def read_constraining_answers(universe: RunUniverse) -> dict[str, sparse.csr_array]:
    """By name, the answers `(n_areas, n_rows)` that constrain a universe, of earlier releases and
    of earlier universes of the run, which must have been estimated.
    """
    schema, found = universe.schema, {}
    for held in universe.declared.held:
        if held.release is None:
            other = replace(universe, name=held.universe)
            found[held.name] = other.area_counts() @ counted_rows(
                schema, other.schema, held.query, held.where, held.of
            )
        else:
            n_rows = marginal_query(schema, held.query).n_rows
            found[held.name] = _read_held(universe, held.name, n_rows)
    return found


def _read_held(universe: RunUniverse, name: str, n_rows: int) -> sparse.csr_array:
    file, mine = held_file(universe.run), [("universe", "=", universe.name), ("held", "=", name)]
    table = pq.read_table(file, columns=["area", "row", "count"], filters=mine)
    area, row, count = (column.to_numpy() for column in table.columns)
    return sparse.csr_array((count, (area, row)), shape=(universe.spine.n_blocks, n_rows))


def read_implied_types(universe: RunUniverse) -> tuple[np.ndarray, sparse.csr_array] | None:
    """Implied type `(n_cells,)` of every cell, and the exact answers `(n_areas, n_types)`; None
    where held answers and bounds imply none. See `implied_types`.
    """
    schema, is_interleaved = universe.schema, universe.settings.interleaves(universe.name)
    implied = implying(universe.declared, schema) if is_interleaved else None
    if implied is None:
        return None
    held, bounds = implied
    label, types, _ = implied_labels(schema, held.query, bounds[0].query)
    return label, _read_held(universe, IMPLIED, types.size)


def released_sums(universe: RunUniverse) -> dict[str, np.ndarray]:
    """By relation, `(n_areas,)` the weighted sum of the released counts of earlier universes."""
    found: dict[str, np.ndarray] = {}
    for relation in universe.declared.relations:
        for side in relation.others:
            sums = replace(universe, name=side.universe).area_counts() @ side.weights
            found[relation.name] = found[relation.name] + sums if relation.name in found else sums
    return found


def agreed_answers(
    universe: RunUniverse, exact: Mapping[str, UnitAnswers]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By agreement, least and most `(n_areas, n_rows)` of its query's answers; see `agreements`.

    They follow from released counts and from exact totals, so that they cost nothing. The earlier
    universes must have been estimated.
    """
    found, schema, agreements = {}, universe.schema, universe.declared.agreements
    types = agreeing_types(agreements, schema)
    if types is not None:
        return _household_answers(universe, types)
    for one in agreements:
        other = replace(universe, name=one.universe)
        released = other.area_counts() @ other.schema.cells_where(one.of).astype(np.int64)
        (invariant,) = universe.declared.invariants
        query = marginal_query(schema, one.query)
        agrees = np.zeros(query.n_rows, dtype=bool)
        agrees[query.row_of_cell[schema.cells_where(one.where)]] = True
        total = exact[invariant.name].of_areas[:, 0]
        found[one.name] = agreement(released, total, one.most, agrees)
    return found


def _household_answers(
    universe: RunUniverse, types: AgreeingTypes
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`agreed_answers` of householders, with equal lower and upper limits, and of sizes, with one
    answer, the number of people.
    """
    found, schema, householders = {}, universe.schema, None
    if types.householders is not None:
        one = types.householders
        other = replace(universe, name=one.universe)
        row = householders_of_cells(one, schema, other.schema)
        answered = incidence(row, marginal_query(schema, one.query).n_rows)
        householders = (other.area_counts() @ answered.T).toarray()
        found[one.name] = householders, householders
    if types.sizes is not None:
        one = types.sizes
        other = replace(universe, name=one.universe)
        counts = other.area_counts()
        least, most = (counts @ people for people in people_of_cells(one, other.schema))
        low, high = household_limits(householders, least, most)
        found[one.name] = low[:, None], high[:, None]
    return found


def refuse_unheld_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Raise InputRefused for an invariant that the run's spine cannot hold."""
    for name in settings.run.universes:
        universe, held = RunUniverse(run, settings, name), _with_held_invariants(settings, name)
        resolved_invariants(universe.spine, held, units_of_run(universe))


def checked_spines(
    settings: TopdownSettings, areas: pd.DataFrame, invariants: pd.DataFrame
) -> Iterator[tuple[str, Spine]]:
    """Build the spine of every universe, and check that it can hold the universe's invariants.

    `areas` and `invariants` are the frames of `ingest.public_tables`. Raises InputRefused for areas
    that make no spine, or one that cannot hold an invariant.
    """
    census = settings.compiled_census
    for universe in settings.run.universes:
        spine = spines_of(settings).spine(universe, (areas, invariants))
        units = units_of_areas(census, spine, areas)
        resolved_invariants(spine, _with_held_invariants(settings, universe), units)
        yield universe, spine


def _with_held_invariants(settings: TopdownSettings, universe: str) -> Universe:
    """A universe with the held invariants: only its own where areas are estimated alone."""
    census = settings.compiled_census
    declared, last = census.universes[universe], census.geolevels[-1]
    if not settings.blocks_only:
        return declared
    own = tuple(entry for entry in declared.invariants if entry.geolevel == last)
    return replace(declared, invariants=own)


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of newly written files.

    Earlier universes that relations name must have been estimated.
    """
    shards = [
        shard
        for shard in shards_of(run, universe)
        if not constraints_file(run, universe, shard.geolevel, shard.name).exists()
    ]
    if not shards:
        return 0
    own, zeros = RunUniverse(run, settings, universe), settings.zeros_of(universe)
    spine, public = own.spine, public_answers(own)
    declared = held_invariants(own.declared, public.exact)
    resolved = resolved_invariants(spine, declared, public.units)
    for shard in shards:
        rows = constraints_of_shard(spine, shard, own.schema, declared, zeros, public, resolved)
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)
    return len(shards)
