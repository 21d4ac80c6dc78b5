"""Full information: top-down passes on best linear unbiased estimates over the spine.

The TopDown Algorithm estimates a geounit from its own measurements and its parent's counts; what
the measurements of its descendants tell about it goes unused. Here they are combined first. From
the blocks up, `combine_shard` turns the measurements of every subtree into the best linear unbiased
estimate of its geounit (`tasks.topdown.estimation.spine_estimates`). Then, from the root down, a
parent's children are estimated by the passes of `topdown`, but instead of noisy answers these
get the answers of the children's best linear unbiased estimates, given the parent's counts and
everything measured in and below the children. Once the parent is given, nothing measured elsewhere
bears on them: without non-negativity, bounds and rounding, the result would be weighted least
squares over all measurements of the spine at once.

The passes minimise a weighted squared distance to these answers. The right weights are the inverse
of the estimates' covariance, which is no combination of queries; `fitted_precisions` takes the
nearest combination of those that the pass has. At the last geolevel nothing lies below, and the
passes get the noisy answers themselves, which tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls
from spineflow.geography.levels import Spine
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.estimation.combined_files import read_combined, write_combined
from spineflow.tasks.topdown.estimation.estimate import (
    Family,
    ShardInput,
    families_of,
    passes_of,
    shards_below,
    structural_zeros,
)
from spineflow.tasks.topdown.estimation.parent import SolveRecord
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.estimation.spine_estimates import GroupedEstimates, subtree_estimates
from spineflow.tasks.topdown.paths import combined_file
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.shards import Shard

PULL = 1e-3
"""Weight, beside the fit's own, that holds fitted precisions to those of the noise where the fit
leaves a choice: where two queries tell a geounit's cells apart in the same way."""


def combine_shard(
    run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine, shard: Shard
) -> None:
    """Write what the measurements of a shard, and all below it, tell about the shard's parents.

    Needs the combined files of the geolevel below. The root has no parents, and no such file.
    """
    given = ShardInput.read(run, settings, universe, spine, shard)
    step = SpineStep.up(given)
    above = spine.geolevels[spine.names.index(shard.geolevel) - 1]
    geocode = above.geocode[shard.parent_start : shard.parent_stop]
    path = combined_file(run, universe, shard.geolevel, shard.name)
    write_combined(path, geocode, step.parents, is_private=settings.is_private)


def estimate_shard(
    run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine, shard: Shard
) -> tuple[SolveRecord, ...]:
    """Estimate the geounits of a shard from measurements, what lies below and the parents'
    estimates, and write them; returns the records of the solves.

    Needs the combined files of the geolevel below.
    """
    given = ShardInput.read(run, settings, universe, spine, shard)
    families = list(families_of(given))
    if shards_below(run, universe, spine, shard):
        step = SpineStep.up(given)
        means = step.down(_parents(given, families))
        precision = _precisions(given, step.own, families)
        informed = {
            name: QueryMeasurement(m.query, m.query.answer(means), precision[name])
            for name, m in given.measured.items()
        }
        given = replace(given, measured=informed)
    return given.estimate(families)


@dataclass(frozen=True)
class SpineStep:
    """One step of the spine, from a shard's geounits to their parents.

    own, parents : estimates from the subtrees of either; a single parent stands above the root.
    parent : (n,) position of each geounit's parent.
    states, exact, state, country : where state totals are invariants, the states' estimates
        without and with them, the state of each geounit and the parent of each state.
    """

    own: GroupedEstimates
    parents: GroupedEstimates
    parent: np.ndarray
    states: GroupedEstimates | None = None
    exact: GroupedEstimates | None = None
    state: np.ndarray | None = None
    country: np.ndarray | None = None

    @classmethod
    def up(cls, given: ShardInput) -> SpineStep:
        """From the measurements of the shard and the combined files of the geolevel below."""
        own = _own_estimates(given)
        shard = given.shard
        level = given.spine.geolevel(shard.geolevel)
        parent = np.maximum(level.parent[shard.start : shard.stop] - shard.parent_start, 0)
        n_parents = max(shard.parent_stop - shard.parent_start, 1)
        state, totals = given.constraints.state, given.constraints.state_total
        if state is None:
            return cls(own, own.summed(parent, n_parents), parent)
        country = np.zeros(len(totals), dtype=np.int64)
        country[state] = parent
        states = own.summed(state, len(totals))
        exact = states.with_totals(totals.astype(np.float64))
        return cls(own, exact.summed(country, n_parents), parent, states, exact, state, country)

    def down(self, histograms: np.ndarray | None) -> np.ndarray:
        """Best linear unbiased estimates `(n, n_cells)` given the parents' histograms
        `(n_parents, n_cells)`; without, given nothing above.
        """
        if self.states is None:
            if histograms is None:
                return self.own.means()
            return self.own.given_wholes(self.parents, self.parent, histograms)
        if histograms is None:
            of_states = self.exact.means()
        else:
            of_states = self.exact.given_wholes(self.parents, self.country, histograms)
        return self.own.given_wholes(self.states, self.state, of_states)


def query_algebra(given: ShardInput) -> QueryAlgebra:
    """Coordinates for all queries of the universe, the same at every geolevel."""
    shares = given.settings.budget_of(given.universe).query_shares
    names = sorted({name for asked in shares.values() for name in asked})
    return QueryAlgebra.build(
        given.schema,
        [marginal_query(given.schema, name) for name in names],
        given.type_of_cell,
        structural_zeros(given.settings, given.universe),
    )


def _own_estimates(given: ShardInput) -> GroupedEstimates:
    """Estimates of the shard's geounits from their subtrees."""
    algebra, below = query_algebra(given), None
    shards = shards_below(given.run, given.universe, given.spine, given.shard)
    if shards:
        files = [combined_file(given.run, given.universe, s.geolevel, s.name) for s in shards]
        below = read_combined(files, given.geocode, algebra)
    total = given.constraints.total
    return subtree_estimates(
        algebra,
        given.constraints.upper > 0,
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


def _precisions(
    given: ShardInput, own: GroupedEstimates, families: Sequence[Family]
) -> dict[str, np.ndarray]:
    """By query, the weight `(n,)` that each geounit's answers get in the passes.

    Siblings get one mean profile over a pass's queries, each scaled by its own precision, because
    a Hessian that siblings share is what makes their problem cheap. Only children have nothing to
    estimate and keep the precisions of the noise.
    """
    precision = {name: m.precision.astype(np.float64) for name, m in given.measured.items()}
    of_noise = {name: values.max() for name, values in precision.items()}
    size = np.array([family.stop - family.start for family in families])
    family_of = np.repeat(np.arange(len(families)), size)
    is_open = (size > 1)[family_of] | (families[0].counts is None)
    passes = passes_of(given.settings, given.universe, given.shard.geolevel).least_squares
    known: list[str] = []
    for names in ([name for name in asked if name in precision] for asked in passes):
        if not names or not is_open.any():
            continue
        known += [name for name in names if name not in known]
        start = np.array([of_noise[name] for name in known])
        fitted = np.zeros((len(given.geocode), len(names)))
        for group in own.groups:
            grams = np.stack(
                [own.algebra.gram(given.measured[name].query, group.cells) for name in known]
            )
            for position in np.flatnonzero(is_open[group.rows]):
                found = fitted_precisions(group.estimates.variance[position], grams, start)
                fitted[group.rows[position]] = found[[known.index(name) for name in names]]
        scale = fitted.sum(axis=1)
        of_families = np.zeros((len(families), len(names)))
        np.add.at(of_families, family_of, fitted)
        profile = of_families / np.maximum(of_families.sum(axis=1, keepdims=True), 1e-300)
        for name, share in zip(names, profile[family_of].T, strict=True):
            precision[name][is_open] = (scale * share)[is_open]
    return precision


def fitted_precisions(variance: np.ndarray, grams: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Non-negative weights w `(q,)` whose combination of Gram matrices is nearest to the inverse
    of a covariance.

    Minimises, over the components, |R (sum of w_q G_q) R - P|^2 in the Frobenius norm, with R the
    square root of the covariance and P the projector on its range, which compares both relative to
    the covariance; `PULL` decides between weights that fit equally well.

    Args:
        variance: (S, n, n) covariance in each component.
        grams: (q, S, n, n) Gram matrices of the queries.
        start: (q,) positive weights to stay near.

    Example: for the total alone, the inverse of the total's variance.
    """
    values, vectors = np.linalg.eigh(variance)
    values = np.maximum(values, 0.0)
    is_positive = values > 1e-10 * values.max(initial=0.0)
    transposed = vectors.swapaxes(-1, -2)
    root = (vectors * np.sqrt(values)[:, None, :]) @ transposed
    range_of = (vectors * is_positive[:, None, :]) @ transposed
    columns = (root @ grams @ root).reshape(len(grams), -1) * start[:, None]
    design = np.vstack([columns.T, PULL * np.eye(len(grams))])
    target = np.concatenate([range_of.ravel(), np.full(len(grams), PULL)])
    return nnls(design, target)[0] * start
