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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...census.queries import MarginalQuery, marginal_query
from ...runs.errors import InputRefused
from ...runs.objects import read_arrays, write_arrays
from ..paths import combined_file
from ..settings import TopdownSettings
from ..spine.files import Family
from ..workload.implied_types import structural_zeros
from .estimate import ShardInput, passes_of
from .exact_weights import ExactWeights
from .parent import Passes
from .problem import QueryMeasurement, SolveRecord
from .query_algebra import QueryAlgebra
from .shard_constraints import typed_query
from .spine_estimates import GroupedEstimates, Step, means_down, steps_up, subtree_estimates

MOST_COVARIANCES = 1 << 16
"""Most numbers in a geounit's covariance: half a megabyte."""


def combine_shard(given: ShardInput) -> None:
    """Write estimates of a shard's parents from the measurements of the shard and its descendants.

    Needs the combined files of the geolevel below. The root has no parents, and no such file.
    """
    universe, shard = given.universe, given.shard
    path = combined_file(universe.run, universe.name, shard.geolevel, shard.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path.with_suffix(""), spine_steps(given)[0].sums.to_arrays())


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
        passes = passes_of(given.universe, given.shard.geolevel, tuple(informed))
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
    universe, budget, found = given.universe, given.universe.budget, {}
    own_first = (*budget.query_shares[given.shard.geolevel], *budget.queries)
    for name in dict.fromkeys(own_first):
        if name in given.measured:
            own = given.measured[name]
            found[name] = replace(own, values=own.query.answer(means))
        elif universe.settings.compiled_census.follows_block_rules:
            query = marginal_query(universe.schema, name)
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
    level = given.universe.spine.geolevel(shard.geolevel)
    parent = np.maximum(level.parent[shard.start : shard.stop] - shard.parent_start, 0)
    n_parents = max(shard.parent_stop - shard.parent_start, 1)
    return steps_up(own, parent, n_parents, given.constraints.known_sums)


def refuse_large_core(settings: TopdownSettings) -> None:
    """Raise InputRefused for a universe whose covariances would be too large to carry.

    They are as large as the square of the number of core cells; see `query_algebra`.
    """
    for universe in settings.run.universes:
        algebra = algebra_of(settings, universe)
        found = len(algebra.components) * len(algebra.cell_type) ** 2
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
    universe, type_of_cell = given.universe, given.constraints.type_of_cell
    algebra = algebra_of(universe.settings, universe.name, type_of_cell)
    below, parts = None, []
    for shard in given.shards_below():
        path = combined_file(universe.run, universe.name, shard.geolevel, shard.name)
        found = GroupedEstimates.of_arrays(algebra, read_arrays(path.with_suffix("")))
        start = max(given.shard.start - shard.parent_start, 0)
        parts.append(found.part(start, given.shard.stop - shard.parent_start))
    if parts:
        below = GroupedEstimates.joined(parts)
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
    histograms = np.zeros((len(families), given.universe.schema.n_cells))
    for row, family in enumerate(families):
        histograms[row, family.support] = family.counts
    return histograms
