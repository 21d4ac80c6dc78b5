"""The figures of the accuracy report, computed from the confidential truth and the release.

Everything read and written here is confidential: the histograms, and the errors that follow from
them. Memory is that of the block histograms and of one quantity's answers for every block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.geography.levels import Spine
from spineflow.tasks.census.census import Census
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_geography,
    read_invariants,
)
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.topdown.checks.accuracy.errors import (
    ALL_ANSWERS,
    ALL_SIZES,
    Pairs,
    redistricting_criterion,
    size_class_names,
    size_classes,
    statistics,
)
from spineflow.tasks.topdown.checks.accuracy.levels import (
    EntityLevel,
    declared_entity_levels,
    entity_levels,
)
from spineflow.tasks.topdown.checks.accuracy.quantities import (
    Answer,
    Quantity,
    answer_matrix,
    quantities_of,
    redistricting_groups,
)
from spineflow.tasks.topdown.checks.accuracy.theory import Prediction
from spineflow.tasks.topdown.estimation.declared_shard import DeclaredConstraints
from spineflow.tasks.topdown.estimation.estimate import ShardConstraints, ShardInput
from spineflow.tasks.topdown.paths import geography_file, invariants_file, spine_folder
from spineflow.tasks.topdown.release.declared_files import area_estimates
from spineflow.tasks.topdown.release.microdata import read_block_estimates
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.families import structural_zeros
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import shards_by_geolevel

FOLDER = "accuracy"
"""Folder of the figures and their report, in the confidential folder of a run."""
ERRORS, CRITERION = "errors.parquet", "criterion.parquet"


@dataclass(frozen=True, eq=False)
class AccuracyFigures:
    """The figures of one run."""

    errors: pd.DataFrame
    """universe, quantity, answer, level, on_spine, size_class, entities, then `statistics`. The
    answer is one of the quantity's, or "all" of them together, and only these have rows for each
    size class beside "all"."""
    criterion: pd.DataFrame
    """population, level, on_spine, then `redistricting_criterion`."""


def compute_figures(run: RunDirectory, settings: TopdownSettings) -> AccuracyFigures:
    """Compare the estimates of every universe with the truth."""
    geography = read_geography(geography_file(run))
    if not settings.is_declared:
        invariants = read_invariants(invariants_file(run))
        used = inhabitable(invariants)
        geography = geography[used].reset_index(drop=True)
        invariants = invariants[used].reset_index(drop=True)
    errors: list[dict[str, Any]] = []
    criterion: list[dict[str, Any]] = []
    for universe in settings.run.universes:
        if settings.is_declared:
            compared = _declared(run, settings, universe, geography)
        else:
            compared = _compared(run, settings, universe, geography, invariants)
        measured = settings.budget_of(universe).query_shares.values()
        queries = [name for shares in measured for name in shares]
        for quantity in quantities_of(compared.schema, settings.compiled_census, queries):
            errors += _errors(compared, quantity)
        criterion += _criterion(compared, settings.compiled_census)
    return AccuracyFigures(pd.DataFrame(errors), pd.DataFrame(criterion))


def write_figures(run: RunDirectory, figures: AccuracyFigures) -> None:
    """Store the figures in the confidential folder."""
    for name, frame in ((ERRORS, figures.errors), (CRITERION, figures.criterion)):
        with replacing(run.confidential / FOLDER / name) as part:
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), part)


def read_figures(run: RunDirectory) -> AccuracyFigures | None:
    """What `write_figures` wrote, None if it is gone."""
    paths = [run.confidential / FOLDER / name for name in (ERRORS, CRITERION)]
    if not all(path.exists() for path in paths):
        return None
    return AccuracyFigures(*(pq.read_table(path).to_pandas() for path in paths))


@dataclass(frozen=True, eq=False)
class _Compared:
    """A universe's truth and release, block by block in the order of the spine."""

    schema: Schema
    truth: sparse.csr_array
    released: sparse.csr_array
    levels: tuple[EntityLevel, ...]
    can_have: np.ndarray
    """(n_blocks, n_types): the types of cells that a block can have; that of a housing unit."""
    type_of_cell: np.ndarray
    """(n_cells,)"""
    prediction: Prediction


def _compared(
    run: RunDirectory,
    settings: TopdownSettings,
    universe: str,
    geography: pd.DataFrame,
    invariants: pd.DataFrame,
) -> _Compared:
    schema, spine = settings.schema_of(universe), read_spine(spine_folder(run, universe))
    truth = read_histogram(run.histogram(universe), spine.block_geocode, n_cells=schema.n_cells)
    columns = ["housing_units"]
    typed = settings.compiled_census.universes[universe].bounded_attribute(schema)
    if typed is not None:
        columns += FACILITY_COLUMNS
    can_have = invariants[columns].iloc[spine.block_row].to_numpy() > 0
    if universe == "persons" and len(columns) == 1:
        can_have = np.ones_like(can_have)
    type_of_cell = np.zeros(schema.n_cells, dtype=np.int64)
    if typed is not None:
        type_of_cell = schema.levels(typed)
    known = None
    if universe == "persons" and not settings.blocks_only and "State" in spine.names:
        states = [geocode[-2:] for geocode in spine.geolevel("State").geocode]
        known = "State", np.unique(states, return_inverse=True)[1]
    return _Compared(
        schema,
        truth,
        _block_estimates(run, spine, schema),
        entity_levels(spine, geography),
        can_have,
        type_of_cell,
        Prediction(
            schema=schema,
            budget=settings.budget_of(universe),
            spine=spine,
            can_have=can_have if universe == "persons" else np.ones_like(can_have),
            type_of_cell=type_of_cell,
            forbidden=structural_zeros(settings, universe),
            known=known,
            block_totals_known=universe == "units",
        ),
    )


def _declared(
    run: RunDirectory, settings: TopdownSettings, universe: str, areas: pd.DataFrame
) -> _Compared:
    """The same of a universe of a declared census, of which the constraint files tell the facts."""
    schema, spine = settings.schema_of(universe), read_spine(spine_folder(run, universe))
    shards = shards_by_geolevel(spine_folder(run, universe))
    known: tuple[str, np.ndarray] | None = None
    is_total_known = False
    for level in spine.geolevels:
        inputs = (
            ShardInput.read(run, settings, universe, spine, shard, with_held=False)
            for shard in shards[level.name]
        )
        given = []
        for shard_input in inputs:
            given.append(shard_input.constraints)
            type_of_cell = shard_input.type_of_cell
        sums = _known_sums(given, len(level))
        known = known if sums is None else (level.name, sums)
        is_total_known = all(part.known_totals is not None for part in given)
    can_have = np.concatenate([part.can_have for part in given])
    released = area_estimates(run, universe, schema.n_cells, len(areas))
    return _Compared(
        schema,
        read_histogram(run.histogram(universe), spine.block_geocode, n_cells=schema.n_cells),
        released[spine.block_row],
        declared_entity_levels(spine, areas, settings.compiled_census),
        can_have,
        type_of_cell,
        Prediction(
            schema=schema,
            budget=settings.budget_of(universe),
            spine=spine,
            can_have=can_have,
            type_of_cell=type_of_cell,
            forbidden=structural_zeros(settings, universe),
            known=known,
            block_totals_known=is_total_known,
        ),
    )


def _known_sums(
    given: Sequence[ShardConstraints | DeclaredConstraints], n_geounits: int
) -> np.ndarray | None:
    """The number of each geounit's unit, `(n_geounits,)`, where all units' totals are exact."""
    if all(part.known_totals is not None for part in given):
        return np.arange(n_geounits)
    units: list[np.ndarray] = []
    for part in given:
        sums = part.known_sums
        if sums is None:
            return None
        units.append(sums[0] + sum(len(other) for other in units))
    return np.concatenate(units)


def _block_estimates(run: RunDirectory, spine: Spine, schema: Schema) -> sparse.csr_array:
    table = read_block_estimates(run.root, schema.universe)
    row = pd.Index(spine.block_geocode).get_indexer(table["block_geocode"].to_numpy())
    where = (row, table["cell"].to_numpy())
    shape = (spine.n_blocks, schema.n_cells)
    return sparse.csr_array((table["count"].to_numpy(), where), shape=shape)


def _errors(compared: _Compared, quantity: Quantity) -> Iterator[dict]:
    matrix = answer_matrix(quantity.answers, compared.schema)
    truth, released = (
        (counts @ matrix).toarray() for counts in (compared.truth, compared.released)
    )
    size = np.asarray(compared.truth.sum(axis=1)).reshape(-1, 1)
    possible = _possible(compared, quantity)
    for level in compared.levels:
        is_pair = level.sums(possible.astype(np.int64)) > 0
        pairs = Pairs(
            level.sums(truth),
            level.sums(released),
            compared.prediction.variances(level, quantity.answers),
        )
        head = {
            "universe": compared.schema.universe,
            "quantity": quantity.name,
            "level": level.name,
            "on_spine": level.on_spine,
        }
        classes = size_classes(level.sums(size)[:, 0])
        for size_class, name in ((None, ALL_SIZES), *enumerate(size_class_names())):
            of_class = is_pair if size_class is None else is_pair & (classes == size_class)[:, None]
            entities = int(of_class.any(axis=1).sum())
            if entities:
                row = {"answer": ALL_ANSWERS, "size_class": name, "entities": entities}
                yield head | row | statistics(pairs.where(of_class))
        if len(quantity.answers) > 1:
            yield from _by_answer(head, quantity.answers, pairs, is_pair)


def _by_answer(
    head: dict, answers: Sequence[Answer], pairs: Pairs, is_pair: np.ndarray
) -> Iterator[dict]:
    for column, answer in enumerate(answers):
        mask = np.zeros_like(is_pair)
        mask[:, column] = is_pair[:, column]
        if mask.any():
            row = {"answer": answer.label, "size_class": ALL_SIZES, "entities": int(mask.sum())}
            yield head | row | statistics(pairs.where(mask))


def _possible(compared: _Compared, quantity: Quantity) -> np.ndarray:
    """(n_blocks, n_answers): the answer of the block can be other than 0."""
    n_types = compared.can_have.shape[1]
    n_cells = compared.type_of_cell.size
    where = (compared.type_of_cell, np.arange(n_cells))
    of_type = sparse.csr_array((np.ones(n_cells, dtype=np.int64), where), (n_types, n_cells))
    counted = of_type @ answer_matrix(quantity.answers, compared.schema)
    return (compared.can_have.astype(np.int64) @ (counted.toarray() > 0)) > 0


def _criterion(compared: _Compared, census: Census) -> Iterator[dict]:
    for population, groups in redistricting_groups(compared.schema, census).items():
        matrix = answer_matrix(groups, compared.schema)
        truth, released = (
            (compared.truth @ matrix).toarray(),
            (compared.released @ matrix).toarray(),
        )
        for level in compared.levels:
            head = {"population": population, "level": level.name, "on_spine": level.on_spine}
            yield head | redistricting_criterion(level.sums(truth), level.sums(released))
