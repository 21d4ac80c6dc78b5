"""From published rows to the measurement files of a run, shard by shard.

Published rows may be in any order. They are read once, in batches, and entered in the order of the
spine in arrays of each shard, which is written when its rows are complete. The arrays are temporary
files that are mapped, so that memory is bounded by what the system leaves there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ....geography.levels import Geolevel, Spine
from ...answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from ...census.queries import MarginalQuery, marginal_query
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ..measurement.measure import ANSWERS_PER_ROW_GROUP
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import Shard, shards_of
from ..workload.budget import Budget
from .geounits import geounits_of, query_of
from .layout import MeasurementFolder, read_rows


def write_level(
    run: RunDirectory,
    settings: TopdownSettings,
    folder: MeasurementFolder,
    universe: str,
    geolevel: str,
) -> int:
    """Write the measurement files of all shards of a geolevel; returns their number.

    Raises InputRefused, naming the file and the geocode, for answers that do not have the number or
    the shape of their query.
    """
    spine = spine_of(run, universe)
    budget, level = settings.budget_of(universe), spine.geolevel(geolevel)
    shards = [s for s in shards_of(run, universe) if s.geolevel == geolevel]
    scratch = run.measurements(universe, geolevel)
    for shard, answers in shard_answers(folder, settings, universe, spine, shards, scratch):
        write_measurements(
            run.dpqueries(universe, geolevel, shard.name),
            _row_groups(level, shard, answers, budget),
        )
    return len(shards)


def shard_answers(
    folder: MeasurementFolder,
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    shards: Sequence[Shard],
    scratch: Path,
) -> Iterator[tuple[Shard, Mapping[MarginalQuery, np.ndarray]]]:
    """Every shard of a geolevel with the answers of its measured geounits, by query.

    The answers are (n_measured, n_rows), in the order of the spine and of the budget's queries. The
    shards come as their rows are complete. `scratch` is a folder for temporary files.
    """
    geolevel = shards[0].geolevel
    level, queries = spine.geolevel(geolevel), _queries(settings, universe, geolevel)
    starts = np.array([shard.start for shard in shards])
    row = np.cumsum(~level.bypassed) - 1
    n_measured = np.add.reduceat((~level.bypassed).astype(np.int64), starts)
    before, n_left = np.cumsum(n_measured) - n_measured, n_measured * len(queries)
    for position in np.flatnonzero(n_left == 0).tolist():
        yield shards[position], {}
    scratch.mkdir(parents=True, exist_ok=True)
    parts: dict[int, list[np.ndarray]] = {}
    for number, place, values in _answers(folder, universe, level, queries):
        of_row = np.searchsorted(starts, place, side="right") - 1
        for position in np.unique(of_row).tolist():
            if position not in parts:
                n = n_measured[position]
                parts[position] = [_mapped(scratch, (n, query.n_rows)) for query in queries]
            rows = np.flatnonzero(of_row == position)
            parts[position][number][row[place[rows]] - before[position]] = values[rows]
            n_left[position] -= rows.size
            if not n_left[position]:
                yield shards[position], dict(zip(queries, parts.pop(position), strict=True))
    if n_left.any():
        raise InputRefused(
            f"{folder.root}: measurements of {universe} at {geolevel} have changed while "
            "they were read; begin again."
        )


def check_level(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, spine: Spine, geolevel: str
) -> None:
    """Refuse answers of a geolevel that do not have the number or the shape of their query."""
    queries = _queries(settings, universe, geolevel)
    for _ in _answers(folder, universe, spine.geolevel(geolevel), queries):
        pass


def _queries(settings: TopdownSettings, universe: str, geolevel: str) -> list[MarginalQuery]:
    """The queries that are measured at a geolevel."""
    schema, shares = settings.schema_of(universe), settings.budget_of(universe).query_shares
    return [marginal_query(schema, name) for name in shares[geolevel]]


REMEDY = "fetch the file again, or name the preset that the measurements were made with"


def _answers(
    folder: MeasurementFolder, universe: str, level: Geolevel, queries: Sequence[MarginalQuery]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Rows of a geolevel's files by query: its number, the geounits (m,), and the answers
    (m, n_rows); none without queries."""
    number = {query.name: position for position, query in enumerate(queries)}
    index = pd.Index(np.asarray(level.geocode, dtype=object))
    columns = ["geocode", "query_name", "value"]
    for path in folder.level(universe, level.name).measurements if queries else ():
        for rows in read_rows(folder, path, columns, ["query_shape"]):
            for name, own in rows.by_query():
                position, place = number[query_of(name)], geounits_of(own, index, level.name)
                query, geocode = queries[position], level.geocode[place]
                whose = f"the answers to {query.name} of "
                what = f"do not have {query.n_rows} values; {REMEDY}"
                values = own.numbers("value", query.n_rows, geocode, what, whose)
                if "query_shape" in own.table.column_names:
                    what = f"do not have the shape {list(query.shape)}; {REMEDY}"
                    shapes = own.numbers("query_shape", len(query.shape), geocode, what, whose)
                    own.refuse_where((shapes != query.shape).any(axis=1), geocode, what, whose)
                yield position, place, values


def _mapped(folder: Path, shape: tuple[int, int]) -> np.ndarray:
    """An array of this shape in a file of a folder that is removed with it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype=np.int64, mode="w+", shape=shape)


def _row_groups(
    level: Geolevel, shard: Shard, answers: Mapping[MarginalQuery, np.ndarray], budget: Budget
) -> Iterator[list[NoisyAnswers]]:
    """The answers as a run's files have them; variances and losses are exact again."""
    measured = shard.start + np.flatnonzero(~level.bypassed[shard.start : shard.stop])
    if not measured.size or not answers:
        return
    step = max(1, ANSWERS_PER_ROW_GROUP // sum(query.n_rows for query in answers))
    for start in range(0, measured.size, step):
        rows = measured[start : start + step]
        code = level.plb_share_code[rows]
        group = []
        for query, values in answers.items():
            asked = budget.query_shares[level.name][query.name]
            variance, plb = np.zeros(rows.size), np.full(rows.size, "", dtype=object)
            for members, noise, spent in budget.noises(level.plb_shares, code, asked):
                variance[members], plb[members] = noise.variance, spent
            name = query.name + DPQUERY_SUFFIX
            group.append(
                NoisyAnswers(name, level.geocode[rows], values[start : start + step], variance, plb)
            )
        yield group
