"""Intervals as tables: a row for every answer of every geounit or area.

Columns: `geocode` (of areas, their name), `query`, a column for each attribute or coarsening that a
query of the table keeps, with the labels of levels; `estimate`, `std_dev`; `lower`, `upper`, whole
numbers; `bounded_lower`, `bounded_upper`, the same with what is known of the counts. The last six
are null where the measurements do not determine an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.census.queries import DETAILED, TOTAL, MarginalQuery
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from spineflow.tasks.topdown.estimation.spine_estimates import GroupedEstimates
from spineflow.tasks.topdown.intervals.answers import answers_of, sums_of
from spineflow.tasks.topdown.intervals.areas import area_estimates, area_variances
from spineflow.tasks.topdown.intervals.intervals import intervals_of
from spineflow.tasks.topdown.intervals.run_posterior import LevelBounds, RunPosterior

NUMBERS = ("estimate", "std_dev", "lower", "upper", "bounded_lower", "bounded_upper")
GEOUNITS_AT_ONCE = 1 << 13


def intervals_of_geolevels(
    found: RunPosterior,
    schema: Schema,
    queries: Sequence[MarginalQuery],
    geolevels: Sequence[str],
    level: float,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Pairs of a geolevel and its table, root first.

    Raises InputRefused for a geolevel that the spine does not have.
    """
    unknown = [name for name in geolevels if name not in found.spine.names]
    if unknown:
        raise InputRefused(
            f"The spine has no geolevel {unknown[0]!r}; it has {', '.join(found.spine.names)}."
        )
    for depth, estimates in found.posterior.down():
        name = found.spine.names[depth]
        if name not in geolevels:
            continue
        geocode = found.spine.geolevels[depth].geocode
        tables = []
        for query in queries:
            for start in range(0, len(geocode), GEOUNITS_AT_ONCE):
                rows = np.arange(start, min(start + GEOUNITS_AT_ONCE, len(geocode)))
                answers = answers_of(estimates, query, rows)
                bounds = _part(found.bounds[depth], rows)
                tables.append(_table(found, schema, query, geocode[rows], answers, bounds, level))
        yield name, pd.concat(tables, ignore_index=True)
        if depth == max(map(found.spine.names.index, geolevels)):
            return


def area_intervals(
    found: RunPosterior,
    schema: Schema,
    queries: Sequence[MarginalQuery],
    areas: pd.DataFrame,
    level: float,
) -> pd.DataFrame:
    """Intervals for areas that are lists of blocks; `areas` has the columns `area` and `block`.

    Areas may overlap. Blocks that are not on the spine can hold nobody, and count as none.
    """
    names, layers = layers_of(areas, found.spine.block_geocode)
    bounds = found.bounds[-1]
    blocks: GroupedEstimates | None = None
    for _, estimates in found.posterior.down():
        blocks = estimates
    if blocks is None:
        raise ValueError("a spine without geolevels has no blocks")
    tables = []
    for query in queries:
        answers = [np.zeros((len(names), query.n_rows)) for _ in range(2)]
        is_known = np.ones((len(names), query.n_rows), dtype=bool)
        lower = [np.zeros((len(names), bounds.lower.shape[1]), dtype=np.int64) for _ in range(2)]
        total = None if bounds.total is None else np.zeros(len(names), dtype=np.int64)
        for number, area in layers:
            covariances = area_variances(found.posterior, query, area, len(number))
            answers[0][number] = area_estimates(blocks, query, area, len(number))
            answers[1][number] = covariances.variances()
            is_known[number] = covariances.is_known()
            of_layer = bounds.summed(area, len(number))
            lower[0][number], lower[1][number] = of_layer.lower, of_layer.upper
            if total is not None and of_layer.total is not None:
                total[number] = of_layer.total
        of_areas = LevelBounds(lower[0], lower[1], total)
        of_query = answers[0], answers[1], is_known
        tables.append(_table(found, schema, query, names, of_query, of_areas, level))
    return pd.concat(tables, ignore_index=True)


def layers_of(
    areas: pd.DataFrame, block_geocode: np.ndarray
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Names of the areas, and layers in which no areas overlap: numbers (m,) of a layer's areas,
    and the place (n_blocks,) of each block's area among them, -1 for none.

    Raises InputRefused if no block of the list is on the spine.
    """
    names, number = np.unique(areas["area"].to_numpy(dtype=object), return_inverse=True)
    block = pd.Index(block_geocode).get_indexer(areas["block"])
    if not (block >= 0).any():
        raise InputRefused(
            "None of the blocks that the areas list is on the run's spine; blocks are given by the "
            "16 digits of state, county, tract, block group and block."
        )
    layers: list[tuple[list[int], np.ndarray]] = []
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(len(names) + 1))
    for area in range(len(names)):
        blocks = block[order[starts[area] : starts[area + 1]]]
        blocks = blocks[blocks >= 0]
        layer = next((layer for layer in layers if not (layer[1][blocks] >= 0).any()), None)
        if layer is None:
            layer = ([], np.full(len(block_geocode), -1, dtype=np.int64))
            layers.append(layer)
        layer[1][blocks] = len(layer[0])
        layer[0].append(area)
    return names, [(np.array(numbers), place) for numbers, place in layers]


def read_areas(path: Path) -> pd.DataFrame:
    """Areas as lists of blocks, from CSV or Parquet with the columns `area` and `block`."""
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise InputRefused(f"{path} cannot be read: {type(error).__name__}.") from None
    missing = {"area", "block"} - set(table.columns)
    if missing:
        raise InputRefused(
            f"{path} has no column {sorted(missing)[0]!r}; an area is the rows with its name in "
            "'area', each with the 16 digits of a block in 'block'."
        )
    return table[["area", "block"]].astype(str).drop_duplicates()


def write_intervals(path: Path, table: pd.DataFrame, *, is_private: bool) -> None:
    """Write a table as CSV or, by any other name, as Parquet, stamped if not private."""
    if path.suffix == ".csv":
        with replacing(path) as part:
            table.to_csv(part, index=False)
        return
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if not is_private:
        arrow = arrow.replace_schema_metadata({**arrow.schema.metadata, STAMP_KEY: NOT_PRIVATE})
    with replacing(path) as part:
        pq.write_table(arrow, part, compression="zstd")


def _part(bounds: LevelBounds, rows: np.ndarray) -> LevelBounds:
    total = None if bounds.total is None else bounds.total[rows]
    return LevelBounds(bounds.lower[rows], bounds.upper[rows], total)


def _table(
    found: RunPosterior,
    schema: Schema,
    query: MarginalQuery,
    geocode: np.ndarray,
    answers: tuple[np.ndarray, np.ndarray, np.ndarray],
    bounds: LevelBounds,
    level: float,
) -> pd.DataFrame:
    """The rows of one query for some geounits."""
    sums_of(found.posterior.algebra, query)
    estimate, variance, is_known = answers
    at_least, at_most = bounds.of_answers(query, found.type_of_cell, found.forbidden)
    ends = intervals_of(estimate, variance, level, at_least, at_most)
    columns: dict[str, object] = {
        "geocode": pd.array(np.repeat(geocode, query.n_rows), dtype="string"),
        "query": pd.array([query.name] * estimate.size, dtype="string"),
    }
    for name, labels in cell_labels(schema, query).items():
        columns[name] = pd.array(np.tile(labels, len(geocode)), dtype="string")
    values = (estimate, np.sqrt(variance))
    for name, value in zip(NUMBERS[:2], values, strict=True):
        columns[name] = np.where(is_known, value, np.nan).ravel()
    ends_of = (ends.lower, ends.upper, ends.bounded_lower, ends.bounded_upper)
    for name, end in zip(NUMBERS[2:], ends_of, strict=True):
        columns[name] = pd.arrays.IntegerArray(end.ravel(), ~is_known.ravel())
    return pd.DataFrame(columns)


def cell_labels(schema: Schema, query: MarginalQuery) -> dict[str, np.ndarray]:
    """(n_answers,) labels of each answer, by the name of the attribute or coarsening."""
    if query.name == TOTAL:
        return {}
    names = list(schema.attributes) if query.name == DETAILED else query.name.split(" * ")
    found: dict[str, np.ndarray] = {}
    levels = np.unravel_index(np.arange(query.n_rows), query.shape)
    for name in names:
        coarsening = schema.coarsening(name)
        attribute = coarsening.attribute if coarsening else name
        labels = coarsening.levels if coarsening else schema.labels(attribute)
        found[name] = np.array(labels, dtype=object)[levels[schema.attributes.index(attribute)]]
    return found
