"""Constraints that the declaration of a census puts on every geounit of a spine.

An invariant is declared at a geolevel of the census and holds wherever that geolevel stands on the
spine. Its units are resolved at the first geolevel of the spine whose geounits do not reach across
their borders: there the parts of a unit must be siblings, whose sum is then held. A geounit above
is made up of whole units, and its answers are their sum. Where the parts of a unit have different
parents, the estimates of one family cannot hold the sum, and the spine is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ....geography.declared import Units
from ....geography.levels import Spine
from ...answers.noisy import Constraint
from ...census.census import Bound, Universe, Zero
from ...runs.errors import InputRefused
from ..spine.shards import Shard

WHOLE, PART, FREE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class LevelUnits:
    """How the units of an invariant lie among the geounits of one geolevel of a spine.

    kind : (n,) WHOLE if the geounit is made up of whole units, PART if it is a part of a unit
        that is resolved here, FREE if it is a part of one that was resolved above.
    unit : (n,) the unit of a part; of a geounit that is one unit, this one; -1 of several.
    """

    kind: np.ndarray
    unit: np.ndarray


def resolved_units(spine: Spine, units: Units, what: str) -> dict[str, LevelUnits]:
    """How an invariant's units lie at every geolevel; see the module's docstring.

    Raises InputRefused, naming `what`, where a unit's parts are not siblings.
    """
    unit = units.number[spine.block_row]
    n_units = len(units.path)
    size = np.bincount(unit, minlength=n_units)
    is_resolved = np.zeros(n_units, dtype=bool)
    found = {}
    for depth, level in enumerate(spine.geolevels):
        ancestor = spine.ancestors(level.name)
        n = len(level)
        low, high = np.full(n, n_units), np.full(n, -1)
        np.minimum.at(low, ancestor, unit)
        np.maximum.at(high, ancestor, unit)
        is_inside = low == high
        reaches_out = np.zeros(n_units, dtype=bool)
        reaches_out[unit[~is_inside[ancestor]]] = True
        here = ~is_resolved & ~reaches_out
        own = np.where(is_inside, low, -1)
        is_one = is_inside & (level.n_blocks == size[np.maximum(own, 0)])
        kind = np.where(is_inside & ~is_one, np.where(here[np.maximum(own, 0)], PART, FREE), WHOLE)
        if depth:
            parts = np.flatnonzero(kind == PART)
            first = np.full(n_units, -1)
            first[own[parts[::-1]]] = level.parent[parts[::-1]]
            apart = parts[level.parent[parts] != first[own[parts]]]
            if apart.size:
                raise InputRefused(
                    f"{what} cannot be held: geounits of {level.name} that make up "
                    f"{units.path[own[apart[0]]]} have different parents on this spine; choose a "
                    "conventional spine, or declare the invariant at a geolevel that the spine "
                    "keeps whole."
                )
        is_resolved |= here
        found[level.name] = LevelUnits(kind, own)
    return found


def declared_resolution(
    spine: Spine, universe: Universe, units: Mapping[str, Units]
) -> dict[str, dict[str, LevelUnits]]:
    """How the units of every invariant lie on a spine; raises InputRefused as `resolved_units`."""
    found = {}
    for invariant in universe.invariants:
        if invariant.geolevel not in units:
            raise InputRefused(
                f"The invariant {invariant.name} of {universe.name} is at {invariant.geolevel}, "
                "which is no column of the table of areas; add the column, or take it out."
            )
        what = f"The invariant {invariant.name} of {universe.name}"
        found[invariant.name] = resolved_units(spine, units[invariant.geolevel], what)
    return found


def constraint_name(name: str, bound: str = "") -> str:
    """The name of a constraint in the run's files."""
    return f"{name}{bound}_con"


def declared_constraints(
    spine: Spine,
    shard: Shard,
    universe: Universe,
    zeros: Sequence[Zero],
    *,
    multiples: Sequence[np.ndarray],
    units: Mapping[str, Units],
    resolved: Mapping[str, Mapping[str, LevelUnits]],
    totals: Mapping[str, Mapping[str, Sequence[int]]],
    released: Mapping[str, np.ndarray],
    held: Mapping[str, sparse.csr_array],
) -> tuple[Constraint, ...]:
    """All constraints of a shard's geounits.

    Args:
        multiples: by bound, `(n_areas, n_rows)` records that the bounds multiply.
        units: the declared geounits of every geolevel.
        resolved: by invariant and geolevel of the spine, from `resolved_units`.
        totals: by invariant, the exact answers of every unit by its path.
        released: by relation, `(n_areas,)` the weighted sum of earlier universes' releases.
        held: by name, the answers `(n_areas, n_rows)` of earlier releases.
    """
    level = spine.geolevel(shard.geolevel)
    geocode = level.geocode[shard.start : shard.stop]
    n = shard.stop - shard.start
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    rows = spine.block_row[blocks]
    geounit = spine.ancestors(shard.geolevel, blocks) - shard.start

    def summed(values: np.ndarray) -> np.ndarray:
        sums = np.zeros((n, *values.shape[1:]), dtype=np.int64)
        np.add.at(sums, geounit, values[rows])
        return sums

    found: list[Constraint] = []
    for number, (bound, counted) in enumerate(zip(universe.bounds, multiples, strict=True)):
        found += _bound_constraints(f"bound_{number}", bound, geocode, summed(counted))
    for invariant in universe.invariants:
        here = resolved[invariant.name][shard.geolevel]
        found += _invariant_constraints(
            invariant.name,
            units[invariant.geolevel],
            totals[invariant.name],
            LevelUnits(here.kind[shard.start : shard.stop], here.unit[shard.start : shard.stop]),
            geocode,
            rows,
            geounit,
        )
    for relation in universe.relations:
        others = np.zeros((n, 1), dtype=np.int64)
        if relation.name in released:
            others = -summed(released[relation.name][:, None])
        name = constraint_name(relation.name)
        found.append(Constraint(name, relation.sign, geocode, others))
    for name, answers in held.items():
        where = (geounit, rows)
        into = sparse.csr_array((np.ones(rows.size, np.int64), where), (n, answers.shape[0]))
        values = (into @ answers).toarray()
        found.append(Constraint(constraint_name(name), "=", geocode, values))
    nothing = np.zeros((n, 1), dtype=np.int64)
    found += [Constraint(constraint_name(zero.name), "=", geocode, nothing) for zero in zeros]
    return tuple(found)


def _bound_constraints(
    name: str, bound: Bound, geocode: np.ndarray, records: np.ndarray
) -> Iterator[Constraint]:
    """The lower and the upper bound, as far as declared, that records `(n, n_rows)` multiply."""
    for factor, suffix, sign in ((bound.at_least, "_lb", ">="), (bound.at_most, "_ub", "<=")):
        if factor is not None:
            yield Constraint(constraint_name(name, suffix), sign, geocode, factor * records)


def _invariant_constraints(
    name: str,
    units: Units,
    totals: Mapping[str, Sequence[int]],
    here: LevelUnits,
    geocode: np.ndarray,
    rows: np.ndarray,
    geounit: np.ndarray,
) -> list[Constraint]:
    """An invariant's answers of whole geounits, and of the units whose parts stand here."""
    found = []
    answers = np.array([totals[path] for path in units.path.tolist()], dtype=np.int64)
    whole = np.flatnonzero(here.kind == WHOLE)
    if whole.size:
        pairs = np.unique(np.stack([geounit, units.number[rows]]), axis=1)
        sums = np.zeros((len(geocode), answers.shape[1]), dtype=np.int64)
        np.add.at(sums, pairs[0], answers[pairs[1]])
        found.append(Constraint(constraint_name(name), "=", geocode[whole], sums[whole]))
    parts = np.unique(here.unit[here.kind == PART])
    if parts.size:
        found.append(Constraint(constraint_name(name), "=", units.path[parts], answers[parts]))
    return found
