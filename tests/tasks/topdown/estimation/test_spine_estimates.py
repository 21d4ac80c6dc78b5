from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import lay_out, measure, read_dataset, with_seed
from spineflow.tasks.topdown.estimation.estimate import ShardInput
from spineflow.tasks.topdown.estimation.full_information import combine_shard, spine_steps
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.estimation.spine_estimates import (
    GroupedEstimates,
    Step,
    means_down,
    steps_up,
    subtree_estimates,
)
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import RunUniverse, read_shards

SMALL = CENSUS.schema("persons", ("hhgq", "votingage", "hispanic"))
UNITS = CENSUS.schema("units", ("occupancy",))
NURSING = {"hhgq": (3,), "votingage": (0,)}
GEOLEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
QUERIES = ("total", "hhinstlevels", "hhgq", "votingage * hispanic", "hispanic", "detailed")


@dataclass(frozen=True)
class SmallSpine:
    """Geolevels root first: parents, what each geounit can have, and its measurements."""

    schema: Schema
    parents: tuple[np.ndarray, ...]
    type_is_possible: tuple[np.ndarray, ...]
    measurements: tuple[dict[str, QueryMeasurement], ...]
    totals: tuple[np.ndarray | None, ...]
    state: np.ndarray | None = None
    state_totals: np.ndarray | None = None

    @property
    def type_of_cell(self):
        if "hhgq" in self.schema.attributes:
            return self.schema.levels("hhgq")
        return np.zeros(self.schema.n_cells, dtype=np.int64)

    @property
    def forbidden(self):
        if {"hhgq", "votingage"} <= set(self.schema.attributes):
            return self.schema.cells_where(NURSING)
        return np.zeros(self.schema.n_cells, dtype=bool)

    @property
    def possible(self):
        """Mask (n, n_cells) of the cells that are no exact zeros, by geolevel."""
        return [have[:, self.type_of_cell] & ~self.forbidden for have in self.type_is_possible]


def small_spine(
    seed,
    *,
    schema=SMALL,
    queries=QUERIES,
    fanouts=(1, 2, 3, 4),
    bypassed=False,
    block_queries=None,
    exact_totals=False,
    states=False,
):
    """Random truth, noise and precisions; with `bypassed`, some only children are unmeasured."""
    rng = np.random.default_rng(seed)
    parents = [np.array([-1])]
    for fanout in fanouts[1:]:
        n_children = rng.integers(1, fanout + 1, len(parents[-1]))
        if bypassed:
            n_children[rng.random(n_children.size) < 0.4] = 1
        parents.append(np.repeat(np.arange(n_children.size), n_children))
    n_types = 8 if "hhgq" in schema.attributes else 1
    have = rng.random((len(parents[-1]), n_types)) < 0.3
    have[:, 0] |= ~have.any(1)
    type_is_possible = [have]
    type_of_cell = schema.levels("hhgq") if n_types > 1 else np.zeros(schema.n_cells, int)
    truth = [rng.poisson(3, (len(have), schema.n_cells)) * have[:, type_of_cell]]
    if set(NURSING) <= set(schema.attributes):
        truth[0][:, schema.cells_where(NURSING)] = 0
    for parent in reversed(parents[1:]):
        up = np.zeros((parent.max() + 1, schema.n_cells), dtype=np.int64)
        np.add.at(up, parent, truth[0])
        truth.insert(0, up)
        any_below = np.zeros((parent.max() + 1, n_types), dtype=bool)
        np.logical_or.at(any_below, parent, type_is_possible[0])
        type_is_possible.insert(0, any_below)
    measurements = []
    for level, exact in enumerate(truth):
        asked = queries
        if block_queries is not None and level == len(truth) - 1:
            asked = block_queries
        is_only = np.zeros(len(exact), dtype=bool)
        if bypassed and level > 0:
            is_only = np.bincount(parents[level])[parents[level]] == 1
        found = {}
        for name in asked:
            query = marginal_query(schema, name)
            precision = rng.uniform(0.2, 3.0) * rng.choice([1.0, 2.5], len(exact))
            precision[is_only] = 0.0
            answers = query.answer(exact)
            found[query.name] = QueryMeasurement(
                query, answers + rng.normal(0, 2, answers.shape), precision
            )
        measurements.append(found)
    totals = tuple(t.sum(1) if exact_totals else None for t in truth)
    state = state_totals = None
    if states:
        state = rng.integers(0, 2, len(truth[1]))
        state = np.unique(state, return_inverse=True)[1]
        state_totals = np.bincount(state, truth[1].sum(1)).astype(float)
        totals = (truth[0].sum(1), *totals[1:])
    return SmallSpine(
        schema,
        tuple(parents),
        tuple(type_is_possible),
        tuple(measurements),
        totals,
        state,
        state_totals,
    )


def by_recursion(spine: SmallSpine) -> list[np.ndarray]:
    """Best linear unbiased estimates of every geolevel: up the spine, then down."""
    asked = {m.query for level in spine.measurements for m in level.values()}
    algebra = QueryAlgebra.build(
        spine.schema, sorted(asked, key=lambda q: q.name), spine.type_of_cell, spine.forbidden
    )
    below: GroupedEstimates | None = None
    up: list[tuple[Step, ...]] = []
    for level in reversed(range(len(spine.parents))):
        own = subtree_estimates(
            algebra,
            spine.type_is_possible[level],
            spine.measurements[level],
            spine.totals[level],
            below,
        )
        parent = np.maximum(spine.parents[level], 0)
        known = None
        if level == 1 and spine.state is not None and spine.state_totals is not None:
            known = spine.state, spine.state_totals
        up.append(steps_up(own, parent, int(parent.max()) + 1, known))
        below = up[-1][0].sums
    estimates: list[np.ndarray] = []
    for steps in reversed(up):
        estimates.append(means_down(steps, estimates[-1] if estimates else None))
    return estimates


def by_dense_least_squares(spine: SmallSpine) -> tuple[list[np.ndarray], np.ndarray]:
    """The same by one dense problem on the possible cells of all blocks, totals as constraints;
    also a basis `(n_blocks * n_cells, k)` of what the measurements do not determine."""
    n_blocks, n_cells = len(spine.parents[-1]), spine.schema.n_cells
    possible = spine.possible[-1].ravel()
    incidence = [np.eye(n_blocks)]
    for parent in reversed(spine.parents[1:]):
        up = np.zeros((parent.max() + 1, len(parent)))
        up[parent, np.arange(len(parent))] = 1.0
        incidence.insert(0, up @ incidence[0])
    rows, answers, exact_rows, exact = [], [], [], []
    for above, measured, totals in zip(incidence, spine.measurements, spine.totals, strict=True):
        for m in measured.values():
            q = m.query.matrix.toarray()
            for geounit in np.flatnonzero(m.precision):
                weight = np.sqrt(m.precision[geounit])
                rows.append(weight * np.kron(above[geounit], q))
                answers.append(weight * m.values[geounit])
        if totals is not None:
            exact_rows.append(np.kron(above, np.ones(n_cells)))
            exact.append(totals)
    if spine.state is not None:
        states = np.zeros((len(spine.state_totals), len(spine.state)))
        states[spine.state, np.arange(len(spine.state))] = 1.0
        exact_rows.append(np.kron(states @ incidence[1], np.ones(n_cells)))
        exact.append(spine.state_totals)
    m, y = np.vstack(rows)[:, possible], np.concatenate(answers)
    x0, null = np.zeros(possible.sum()), np.eye(possible.sum())
    if exact_rows:
        c, d = np.vstack(exact_rows)[:, possible], np.concatenate(exact)
        x0 = np.linalg.lstsq(c, d, rcond=None)[0]
        _, values, vectors = np.linalg.svd(c)
        null = vectors[(values > 1e-9 * values[0]).sum() :].T
    reduced = m @ null
    step = np.linalg.lstsq(reduced, y - m @ x0, rcond=1e-11)[0]
    x = np.zeros(n_blocks * n_cells)
    x[possible] = x0 + null @ step
    _, values, vectors = np.linalg.svd(reduced)
    free = np.zeros((n_blocks * n_cells, len(vectors) - (values > 1e-9 * values[0]).sum()))
    free[possible] = null @ vectors[len(vectors) - free.shape[1] :].T
    blocks = x.reshape(n_blocks, n_cells)
    return [above @ blocks for above in incidence], free


CASES = {
    "plain": {},
    "deep": {"fanouts": (1, 2, 2, 3, 3)},
    "bypassed": {"bypassed": True},
    "state totals": {"states": True},
    "state totals and bypassed": {"states": True, "bypassed": True},
    "exact totals": {"exact_totals": True},
    "exact totals and bypassed": {"exact_totals": True, "bypassed": True},
    "units": {"schema": UNITS, "queries": ("detailed",), "exact_totals": True, "bypassed": True},
    "one query": {"queries": ("detailed",)},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_recursion_is_generalised_least_squares(case, seed):
    spine = small_spine(seed, **CASES[case])
    expected, free = by_dense_least_squares(spine)
    assert free.shape[1] == 0
    for level, found in zip(expected, by_recursion(spine), strict=True):
        assert np.abs(found - level).max() < 1e-8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("totals", ["exact_totals", "states", None])
@pytest.mark.parametrize("block_queries", [("total",), ("hhgq",), ("votingage * hispanic",)])
def test_what_is_determined_is_right_where_blocks_are_not_measured_in_full(
    block_queries, totals, seed
):
    options = {} if totals is None else {totals: True}
    spine = small_spine(seed, block_queries=block_queries, bypassed=seed == 2, **options)
    expected, free = by_dense_least_squares(spine)
    found = by_recursion(spine)
    # What goes beyond the measurements must be none of what they determine.
    rest = (found[-1] - expected[-1]).ravel()
    rest = rest - free @ (free.T @ rest)
    assert np.abs(rest).max() < 1e-8
    # Above the blocks everything is measured.
    for level, estimate in zip(expected[:-1], found[:-1], strict=True):
        assert np.abs(estimate - level).max() < 1e-8


def test_children_add_up_to_their_parents():
    spine = small_spine(7, states=True, bypassed=True)
    found = by_recursion(spine)
    for above, estimates, parent in zip(found, found[1:], spine.parents[1:], strict=False):
        sums = np.zeros_like(above)
        np.add.at(sums, parent, estimates)
        assert np.abs(sums - above).max() < 1e-9


def test_impossible_cells_are_exact_zeros():
    spine = small_spine(8)
    for estimates, possible in zip(by_recursion(spine), spine.possible, strict=True):
        assert not estimates[~possible].any()


def settings_of(folder: Path, county: Path) -> TopdownSettings:
    """A small schema with everything that can happen: bypass, state totals, structural zeros."""
    shares = (
        '{total = "1/2", hhinstlevels = "1/8", "votingage * hispanic" = "1/8", detailed = "1/4"}'
    )
    lines = [
        'preset = "pl94_2020_us"',
        "[input]",
        *(f'{name} = "{county / name}.parquet"' for name in ("persons", "units")),
        f'geography = "{county / "grfc.txt"}"',
        "confidential = false",
        "[privacy]",
        'dataset = "county"',
        "[run]",
        'universes = ["persons"]',
        "[budget.persons.queries]",
        *(f"{name} = {shares}" for name in GEOLEVELS),
        "[workload.persons]",
        'attributes = ["hhgq", "votingage", "hispanic"]',
        'structural_zeros = [{name = "nurse_nva_0", where = {hhgq = [3], votingage = [0]}}]',
        "[workload.persons.passes.other]",
        'least_squares = [["all"]]',
        'rounder = [["detailed"]]',
    ]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n")
    return load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)


@pytest.mark.slow
def test_shards_and_files_give_generalised_least_squares(tmp_path: Path):
    """The files of a measured run, up and down, against one dense problem on the same files."""
    generate_county(tmp_path / "county", persons=600, seed=2)
    settings = settings_of(tmp_path, tmp_path / "county")
    dataset = read_dataset(settings, tmp_path / "dataset")
    layout = lay_out(dataset, settings, tmp_path / "layout")
    run = measure(layout, with_seed(settings, 1), tmp_path / "measured")
    universe = RunUniverse(run, settings, "persons")
    spine, shards = universe.spine, read_shards(spine_folder(run, "persons"))
    assert [shard.geolevel for shard in shards] == list(spine.names)
    assert any(level.bypassed.any() for level in spine.geolevels)
    for shard in reversed(shards[1:]):
        combine_shard(ShardInput.read(universe, shard))
    inputs = [ShardInput.read(universe, shard) for shard in shards]
    found: list[np.ndarray] = []
    for given in inputs:
        found.append(means_down(spine_steps(given), found[-1] if found else None))
    state = inputs[1].constraints
    expected, free = by_dense_least_squares(
        SmallSpine(
            settings.schema_of("persons"),
            tuple(level.parent for level in spine.geolevels),
            tuple(given.constraints.upper > 0 for given in inputs),
            tuple(given.measured for given in inputs),
            tuple(given.constraints.known_totals for given in inputs),
            state.group,
            state.group_total,
        )
    )
    assert free.shape[1] == 0
    for estimates, level in zip(found, expected, strict=True):
        assert np.abs(estimates - level).max() < 1e-8
