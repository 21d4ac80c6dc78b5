"""Full information: top-down passes on best linear unbiased estimates over the spine.

The TopDown Algorithm estimates a geounit from its own measurements and its parent's counts; the
measurements of its descendants go unused. Here they are combined first. From the blocks up,
`combine_shard` turns the measurements of every subtree into the best linear unbiased estimate of
its geounit (`tasks.topdown.estimation.spine_estimates`). Then, from the root down, a parent's
children are estimated by the passes of `topdown`, but instead of noisy answers these get the
answers of the children's best linear unbiased estimates, given the parent's counts and everything
measured in and below the children. Once the parent is given, nothing measured elsewhere bears on
them: without non-negativity, bounds and rounding, the result would be weighted least squares over
all measurements of the spine at once.

The passes minimise the distance to these estimates in the metric of their inverse covariance, which
is no combination of queries (`tasks.topdown.estimation.exact_weights`); at the root, one for sums
over many cells comes first (`margins_first`). The last geolevel has no descendants, and its passes
get the noisy answers themselves, which are equivalent.

The combination uses two kinds of exact answers, totals and types that a geounit cannot have; all
others constrain the passes alone. Where a family has linear rows, the passes weigh the answers by
the variances of their own noise (`least_squares.solve_passes`).

Estimates from the descendants of geounits, as Parquet: one row a geounit, one file for the shard of
children.

`geocode`; `can_have` list<bool>, by type; `mean` list<double>, row-major (n, m); `variance` and
`diffuse` list<double>, row-major (S, n, n); all three are empty where a geounit can have nothing.
For shapes see `tasks.topdown.estimation.query_algebra`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...census.queries import MarginalQuery, marginal_query
from ...runs.errors import InputRefused
from ...runs.stamps import write_parquet
from ..paths import combined_file
from ..settings import TopdownSettings
from ..spine.shards import Family
from ..workload.implied_types import structural_zeros
from .estimate import ShardInput, passes_of
from .exact_weights import ExactWeights
from .parent import Passes
from .problem import QueryMeasurement, SolveRecord
from .query_algebra import QueryAlgebra
from .shard_constraints import typed_query
from .spine_estimates import (
    Group,
    GroupedEstimates,
    LinearEstimates,
    Step,
    means_down,
    patterns,
    steps_up,
    subtree_estimates,
)

_COLUMNS = ("geocode", "can_have", "mean", "variance", "diffuse")


def write_combined(path: Path, geocode: np.ndarray, sums: GroupedEstimates) -> None:
    """Write the estimates of geounits from their children, `geocode` (n_geounits,)."""
    found = np.concatenate([np.zeros(0, dtype=np.int64), *(group.rows for group in sums.groups)])
    rest = np.setdiff1d(np.arange(len(geocode)), found)
    nothing = Group(rest, rest[:0], LinearEstimates.zero(rest.size, 0, 1, 1))
    parts = []
    for group in (*sums.groups, nothing):
        of = group.estimates
        columns = (sums.type_is_possible[group.rows], of.mean, of.variance, of.diffuse)
        geocodes = pa.array(geocode[group.rows], pa.string())
        parts.append(pa.table([geocodes, *map(_lists, columns)], names=_COLUMNS))
    write_parquet(path, pa.concat_tables(parts), compression="zstd", use_dictionary=["geocode"])


def read_combined(
    paths: Iterable[Path], geocode: np.ndarray, algebra: QueryAlgebra
) -> GroupedEstimates:
    """Estimates of the given geounits from their children, from any of the files.

    Raises ValueError if one of them is missing.
    """
    wanted = pa.array(geocode, pa.string())
    tables = []
    for path in paths:
        table = pq.read_table(path)
        row = pc.index_in(table["geocode"], value_set=wanted)
        tables.append(table.append_column("row", row).filter(pc.is_valid(row)))
    table = pa.concat_tables(tables).sort_by("row").combine_chunks()
    if table.num_rows != len(geocode):
        raise ValueError("the combined measurements of a geounit are missing or repeated")
    type_is_possible = _rows(table["can_have"])
    groups = []
    for rows, cells in patterns(algebra, type_is_possible):
        part = table.take(pa.array(rows))
        square = (rows.size, len(algebra.components), cells.size, cells.size)
        shapes = ((rows.size, cells.size, algebra.n_coordinates), square, square)
        arrays = (
            _rows(part[name]).reshape(shape)
            for name, shape in zip(_COLUMNS[2:], shapes, strict=True)
        )
        groups.append(Group(rows, cells, LinearEstimates(*arrays)))
    return GroupedEstimates(algebra, type_is_possible, tuple(groups))


def _lists(values: np.ndarray) -> pa.ListArray:
    """One list for each geounit, of the numbers in its row."""
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))


def _rows(column: pa.ChunkedArray) -> np.ndarray:
    """Lists of one length as the rows of an array."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), -1)


MOST_COVARIANCES = 1 << 16
"""Most numbers in a geounit's covariance: half a megabyte."""


def combine_shard(given: ShardInput) -> None:
    """Write estimates of a shard's parents from the measurements of the shard and its descendants.

    Needs the combined files of the geolevel below. The root has no parents, and no such file.
    """
    steps, spine, shard = spine_steps(given), given.spine, given.shard
    above = spine.geolevels[spine.names.index(shard.geolevel) - 1]
    geocode = above.geocode[shard.parent_start : shard.parent_stop]
    path = combined_file(given.run, given.universe, shard.geolevel, shard.name)
    write_combined(path, geocode, steps[0].sums)


def estimate_shard(given: ShardInput) -> tuple[SolveRecord, ...]:
    """Estimate the geounits of a shard from measurements, their children's and parents' estimates,
    and write them; returns the records of the solves.

    Needs the combined files of the geolevel below.
    """
    families = list(given.families())
    if given.shards_below():
        steps = spine_steps(given)
        own, means = steps[-1].parts, means_down(steps, _parents(given, families))
        algebra = own.algebra
        informed = informed_answers(given, means)
        given = replace(given, measured=informed)
        geolevel = given.shard.geolevel
        passes = passes_of(given.settings, given.universe, geolevel, tuple(informed))
        if families[0].counts is None:
            passes = margins_first(passes, informed, algebra)

        def weights(family: Family) -> ExactWeights:
            rows = np.arange(family.start, family.stop)
            return ExactWeights(algebra, means[rows], *own.covariances(rows))

        return given.estimate(families, passes, weights)
    return given.estimate(families)


def informed_answers(given: ShardInput, means: np.ndarray) -> dict[str, QueryMeasurement]:
    """Answers of best linear unbiased estimates `(n, n_cells)` to every query of the budget.

    They also inform queries measured only at other geolevels, which the passes hold in the same
    order. Answers without measurements have no weight of their own; where areas are not blocks they
    are left out, since passes with linear rows weigh answers.
    """
    budget, found = given.settings.budget_of(given.universe), {}
    own_first = (*budget.query_shares[given.shard.geolevel], *budget.queries)
    for name in dict.fromkeys(own_first):
        if name in given.measured:
            own = given.measured[name]
            found[name] = replace(own, values=own.query.answer(means))
        elif given.settings.compiled_census.follows_block_rules:
            query = marginal_query(given.schema, name)
            found[name] = QueryMeasurement(query, query.answer(means), np.zeros(len(means)))
    return found


def margins_first(
    passes: Passes, measured: Mapping[str, QueryMeasurement], algebra: QueryAlgebra
) -> Passes:
    """The passes at the root, with one before them for the total and one for the margins of single
    attributes, other than the longest free one: type, voting age and Hispanic origin, for the
    redistricting product.

    At the root no parent's counts hold the sums down. Each of many empty cells is estimated at zero
    or above, so that their sum is too high and all other counts too low: a bias that no weights
    avoid, because it is the cells' own. The few sums over them are far from zero and known
    precisely; once a pass of their own has set them, the cells cannot move them.
    """
    asked = [name for names in passes.least_squares for name in names if name in measured]
    kept = {name: np.flatnonzero(np.array(measured[name].query.shape) > 1) for name in asked}
    total = tuple(name for name in asked if not kept[name].size)
    coarse = tuple(
        name for name in asked if kept[name].size == 1 and kept[name][0] != algebra.longest
    )
    if not coarse or not any(algebra.longest in kept[name] for name in asked):
        return passes
    first = {*total, *coarse}
    rest = [tuple(name for name in names if name not in first) for names in passes.least_squares]
    found = (names for names in (total, coarse, *rest) if names)
    return replace(passes, least_squares=tuple(found))


def spine_steps(given: ShardInput) -> tuple[Step, ...]:
    """From a shard's geounits to their parents; the root gets a single artificial parent.

    Needs the combined files of the geolevel below.
    """
    own = _own_estimates(given)
    shard = given.shard
    level = given.spine.geolevel(shard.geolevel)
    parent = np.maximum(level.parent[shard.start : shard.stop] - shard.parent_start, 0)
    n_parents = max(shard.parent_stop - shard.parent_start, 1)
    return steps_up(own, parent, n_parents, given.constraints.known_sums)


def refuse_large_core(settings: TopdownSettings) -> None:
    """Raise InputRefused for a universe whose covariances would be too large to carry.

    They are as large as the square of the number of core cells; see `query_algebra`.
    """
    for universe in settings.run.universes:
        found = algebra_of(settings, universe).n_covariances
        if found > MOST_COVARIANCES:
            raise InputRefused(
                f"run.estimator = {settings.run.estimator!r} carries {found:,} "
                f"covariances for every geounit of {universe}, and can carry {MOST_COVARIANCES:,}; "
                "choose 'topdown', or queries, bounds and structural zeros that distinguish fewer "
                "levels of attributes."
            )


def algebra_of(
    settings: TopdownSettings,
    universe: str,
    type_of_cell: np.ndarray | None = None,
    *,
    with_zeros: bool = True,
) -> QueryAlgebra:
    """Coordinates for all queries of a universe, the same at every geolevel; without structural
    zeros where they are left out.

    Types of cells default to the types that follow from the settings alone.
    """
    schema, queries = settings.schema_of(universe), measured_queries(settings, universe)
    if type_of_cell is None:
        typed = typed_query(settings.compiled_census.universes[universe], schema)
        type_of_cell = marginal_query(schema, typed).row_of_cell
    zeros = structural_zeros(settings, universe) & with_zeros
    return QueryAlgebra.build(schema, queries, type_of_cell, zeros)


def measured_algebra(
    settings: TopdownSettings,
    universe: str,
    type_of_cell: np.ndarray | None = None,
    asked: Sequence[MarginalQuery] | None = None,
) -> QueryAlgebra:
    """Coordinates that a universe's measurements inform and answers to queries depend on, all by
    default; types as in `algebra_of`.
    """
    algebra = algebra_of(settings, universe, type_of_cell)
    return algebra.restricted(measured_queries(settings, universe), asked)


def measured_queries(settings: TopdownSettings, universe: str) -> list[MarginalQuery]:
    """All queries of a universe's budget, at whatever geolevel."""
    schema = settings.schema_of(universe)
    return [marginal_query(schema, name) for name in sorted(settings.budget_of(universe).queries)]


def _own_estimates(given: ShardInput) -> GroupedEstimates:
    """Estimates of the shard's geounits from their subtrees."""
    algebra = algebra_of(given.settings, given.universe, given.constraints.type_of_cell)
    below = None
    shards = given.shards_below()
    if shards:
        files = [combined_file(given.run, given.universe, s.geolevel, s.name) for s in shards]
        below = read_combined(files, given.geocode, algebra)
    total = given.constraints.known_totals
    return subtree_estimates(
        algebra,
        given.constraints.type_is_possible,
        given.measured,
        None if total is None else total.astype(np.float64),
        below,
    )


def _parents(given: ShardInput, families: Sequence[Family]) -> np.ndarray | None:
    """Estimates `(n_parents, n_cells)` of the parents; None at the root."""
    if families[0].counts is None:
        return None
    histograms = np.zeros((len(families), given.schema.n_cells))
    for row, family in enumerate(families):
        histograms[row, family.support] = family.counts
    return histograms
