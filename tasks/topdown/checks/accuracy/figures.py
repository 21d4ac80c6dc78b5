"""The figures of the accuracy report, computed from the confidential truth and the release.

Everything read and written here is confidential: the histograms, and the errors that follow from
them. Large spines are compared stretch by stretch, and what is added up of a stretch is how often
each error comes: memory is that of a stretch's histograms and of one quantity's answers for its
blocks, for each of those at work at once, beside the spine and the codes of all blocks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.geography.texts import TextIndex
from spineflow.tasks.census.census import Census
from spineflow.tasks.census.histograms import read_histogram, sum_histogram
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
    LargestGroups,
    Pairs,
    Tally,
    criterion_of,
    figures_of,
    size_class_names,
    size_classes,
)
from spineflow.tasks.topdown.checks.accuracy.levels import (
    EntityLevel,
    declared_entity_levels,
    stretched_levels,
)
from spineflow.tasks.topdown.checks.accuracy.quantities import (
    Quantity,
    answer_matrix,
    quantities_of,
    redistricting_groups,
)
from spineflow.tasks.topdown.checks.accuracy.stretches import (
    STATE,
    Stretch,
    predictions_of,
    states_of,
    stretches_of,
)
from spineflow.tasks.topdown.checks.accuracy.theory import Prediction
from spineflow.tasks.topdown.estimation.declared_shard import DeclaredConstraints
from spineflow.tasks.topdown.estimation.estimate import ShardConstraints, ShardInput
from spineflow.tasks.topdown.paths import geography_file, invariants_file, spine_folder
from spineflow.tasks.topdown.release.declared_files import area_estimates
from spineflow.tasks.topdown.release.microdata import PlacedBlocks
from spineflow.tasks.topdown.release.tabulations.levels import COLUMNS
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.families import structural_zeros
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import shards_by_geolevel

FOLDER = "accuracy"
"""Folder of the figures and their report, in the confidential folder of a run."""
MOST_STRETCHES_AT_ONCE = 4
"""Each takes the memory of its own."""
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
    errors: list[dict[str, Any]] = []
    criterion: list[dict[str, Any]] = []
    census = settings.compiled_census
    for universe in settings.run.universes:
        measured = settings.budget_of(universe).query_shares.values()
        queries = [name for shares in measured for name in shares]
        quantities = quantities_of(settings.schema_of(universe), census, queries)
        if settings.is_declared:
            areas = read_geography(geography_file(run))
            parts = iter([_declared(run, settings, universe, areas)])
        else:
            parts = _compared(run, settings, universe, quantities)
        whole = _Tallied({}, {})
        for tallied in _side_by_side(
            partial(_tallied, quantities=quantities, census=census),
            parts,
            min(settings.run.workers, os.cpu_count() or 1, MOST_STRETCHES_AT_ONCE),
        ):
            whole.add(tallied)
        for quantity in quantities:
            for (name, _), of_level in whole.errors.items():
                if name == quantity.name:
                    errors += of_level.rows(universe, quantity)
        criterion += [own.row() for own in whole.groups.values()]
    return AccuracyFigures(pd.DataFrame(errors), pd.DataFrame(criterion))


def _side_by_side(
    function: Callable[[_Compared], _Tallied], parts: Iterator[_Compared], workers: int
) -> Iterator[_Tallied]:
    """What a function makes of each part, in their order, of several parts at a time in threads:
    most of its time passes in compiled code that leaves Python to others."""
    with ThreadPoolExecutor(workers) as pool:
        begun: deque[Future[_Tallied]] = deque()
        for part in parts:
            begun.append(pool.submit(function, part))
            del part
            while len(begun) >= workers:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


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
    """A universe's truth and release, block by block in the order of a spine or of a stretch."""

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
    run: RunDirectory, settings: TopdownSettings, universe: str, quantities: Sequence[Quantity]
) -> Iterator[_Compared]:
    """A universe, stretch by stretch."""
    schema, spine = settings.schema_of(universe), read_spine(spine_folder(run, universe))
    columns = ["housing_units"]
    typed = settings.compiled_census.universes[universe].bounded_attribute(schema)
    if typed is not None:
        columns += FACILITY_COLUMNS
    invariants = read_invariants(invariants_file(run), with_geocodes=False)
    used = inhabitable(invariants)
    can_have = (invariants[columns].to_numpy() > 0)[used][spine.block_row]
    del invariants
    if universe == "persons" and len(columns) == 1:
        can_have = np.ones_like(can_have)
    type_of_cell = np.zeros(schema.n_cells, dtype=np.int64)
    if typed is not None:
        type_of_cell = schema.levels(typed)
    known = None
    if universe == "persons" and not settings.blocks_only and STATE in spine.names:
        known = STATE, states_of(spine)
    prediction = Prediction(
        schema=schema,
        budget=settings.budget_of(universe),
        spine=spine,
        can_have=can_have if universe == "persons" else np.ones_like(can_have),
        type_of_cell=type_of_cell,
        forbidden=structural_zeros(settings, universe),
        known=known,
        block_totals_known=universe == "units",
    )
    stretches = stretches_of(spine)
    asked = prediction.components([answer for own in quantities for answer in own.answers])
    predictions = predictions_of(prediction, stretches, asked)
    codes = pq.read_table(geography_file(run), columns=["block_geocode", *COLUMNS.values()])
    geography = codes.filter(pa.array(used)).to_pandas()
    del codes
    levels = stretched_levels(spine, [own.spine for own in stretches], geography)
    placed = PlacedBlocks.read(run, universe)
    for stretch, of_stretch, predicted in zip(stretches, levels, predictions, strict=True):
        n = stretch.spine.n_blocks
        truth = sum_histogram(
            run.histogram(universe),
            stretch.spine.block_geocode,
            np.arange(n),
            n_groups=n,
            n_cells=schema.n_cells,
            among_others=n < spine.n_blocks,
        )
        released = _block_estimates(
            placed.estimates(run, universe, stretch.blocks), stretch, schema
        )
        # Other stretches have a copy of their own: what a prediction keeps is dropped with it.
        yield _Compared(
            schema,
            truth,
            released,
            of_stretch,
            can_have[stretch.blocks],
            type_of_cell,
            replace(predicted),
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


def _block_estimates(table: pa.Table, stretch: Stretch, schema: Schema) -> sparse.csr_array:
    blocks = TextIndex(stretch.spine.block_geocode)
    row = blocks.positions(table["block_geocode"].combine_chunks())
    inside = row >= 0
    where = (row[inside], table["cell"].to_numpy()[inside])
    shape = (stretch.spine.n_blocks, schema.n_cells)
    return sparse.csr_array((table["count"].to_numpy()[inside], where), shape=shape)


@dataclass(frozen=True, eq=False)
class _LevelTallies:
    """The errors of a quantity at one level, by answer and size class."""

    level: str
    on_spine: bool
    entities: np.ndarray
    """(n_classes,) entities of each class that have a pair."""
    tallies: dict[tuple[int, int], list[Tally]]
    """By answer and class."""

    def empty(self) -> _LevelTallies:
        """The same level before anything has been added."""
        return replace(self, entities=np.zeros_like(self.entities), tallies={})

    def add(self, other: _LevelTallies) -> None:
        """Add the same level of another stretch."""
        self.entities[:] += other.entities
        for key, tallies in other.tallies.items():
            self.tallies.setdefault(key, []).extend(tallies)

    def rows(self, universe: str, quantity: Quantity) -> Iterator[dict]:
        """The rows of `AccuracyFigures.errors`."""
        head = {
            "universe": universe,
            "quantity": quantity.name,
            "level": self.level,
            "on_spine": self.on_spine,
        }
        for number, name in ((None, ALL_SIZES), *enumerate(size_class_names())):
            entities = int(self.entities.sum() if number is None else self.entities[number])
            if entities:
                chosen = [own for (_, c), own in self.tallies.items() if number in (None, c)]
                row = {"answer": ALL_ANSWERS, "size_class": name, "entities": entities}
                yield head | row | figures_of(list(chain(*chosen)))
        if len(quantity.answers) == 1:
            return
        for column, answer in enumerate(quantity.answers):
            chosen = [own for (a, _), own in self.tallies.items() if a == column]
            if chosen:
                figures = figures_of(list(chain(*chosen)))
                row = {
                    "answer": answer.label,
                    "size_class": ALL_SIZES,
                    "entities": figures["pairs"],
                }
                yield head | row | figures


@dataclass(frozen=True, eq=False)
class _Tallied:
    """The errors of a stretch or of several, by quantity and level, and the largest groups, by
    population and level."""

    errors: dict[tuple[str, str], _LevelTallies]
    groups: dict[tuple[str, str], _LevelGroups]

    def add(self, other: _Tallied) -> None:
        """Add the next stretch."""
        for key, errors in other.errors.items():
            self.errors.setdefault(key, errors.empty()).add(errors)
        for key, groups in other.groups.items():
            self.groups.setdefault(key, replace(groups, parts=[])).parts.extend(groups.parts)


def _tallied(compared: _Compared, quantities: Sequence[Quantity], census: Census) -> _Tallied:
    tallied = _Tallied({}, {})
    for quantity in quantities:
        _add_errors(compared, quantity, tallied.errors)
    _add_groups(compared, census, tallied.groups)
    return tallied


def _add_errors(
    compared: _Compared, quantity: Quantity, tallies: dict[tuple[str, str], _LevelTallies]
) -> None:
    """Add the errors of a quantity at every level, by quantity and level."""
    matrix = answer_matrix(quantity.answers, compared.schema)
    truth, released = (
        (counts @ matrix).toarray() for counts in (compared.truth, compared.released)
    )
    size = np.asarray(compared.truth.sum(axis=1)).reshape(-1, 1)
    possible = _possible(compared, quantity).astype(np.int64)
    n_classes = len(size_class_names())
    for level in compared.levels:
        of_level = tallies.setdefault(
            (quantity.name, level.name),
            _LevelTallies(level.name, level.on_spine, np.zeros(n_classes, dtype=np.int64), {}),
        )
        if not level.n_entities:
            continue
        is_pair = level.sums(possible) > 0
        pairs = Pairs(
            level.sums(truth),
            level.sums(released),
            compared.prediction.variances(level, quantity.answers),
        )
        classes = size_classes(level.sums(size)[:, 0])
        for number in np.unique(classes).tolist():
            rows = np.flatnonzero(classes == number)
            of_level.entities[number] += int(is_pair[rows].any(axis=1).sum())
            for column in range(len(quantity.answers)):
                chosen = rows[is_pair[rows, column]], column
                if len(chosen[0]):
                    own = of_level.tallies.setdefault((column, number), [])
                    own.append(Tally.of(pairs.where(chosen)))


def _possible(compared: _Compared, quantity: Quantity) -> np.ndarray:
    """(n_blocks, n_answers): the answer of the block can be other than 0."""
    n_types = compared.can_have.shape[1]
    n_cells = compared.type_of_cell.size
    where = (compared.type_of_cell, np.arange(n_cells))
    of_type = sparse.csr_array((np.ones(n_cells, dtype=np.int64), where), (n_types, n_cells))
    counted = of_type @ answer_matrix(quantity.answers, compared.schema)
    return (compared.can_have.astype(np.int64) @ (counted.toarray() > 0)) > 0


@dataclass(frozen=True, eq=False)
class _LevelGroups:
    """The largest groups of a population's entities of a level, by stretch."""

    head: dict[str, Any]
    parts: list[LargestGroups]

    def row(self) -> dict[str, Any]:
        """The row of `AccuracyFigures.criterion`."""
        return self.head | criterion_of(self.parts)


def _add_groups(
    compared: _Compared, census: Census, found: dict[tuple[str, str], _LevelGroups]
) -> None:
    """Add the largest groups of every population, by population and level."""
    for population, groups in redistricting_groups(compared.schema, census).items():
        matrix = answer_matrix(groups, compared.schema)
        truth, released = (
            (compared.truth @ matrix).toarray(),
            (compared.released @ matrix).toarray(),
        )
        for level in compared.levels:
            head = {"population": population, "level": level.name, "on_spine": level.on_spine}
            own = found.setdefault((population, level.name), _LevelGroups(head, []))
            own.parts.append(LargestGroups.of(level.sums(truth), level.sums(released)))
