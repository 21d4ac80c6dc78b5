"""From published rows to the measurement files of a run, shard by shard.

Published rows may be in any order. They are read once, in batches, and buffered by shard; a
shard whose rows are complete is put in the order of its spine and written. Buffers
beyond some hundred megabytes go to temporary files, so that memory is bounded, and
files in the order of their geounits never need them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

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
from .layout import CodeIndex, MeasurementFolder, read_rows

MOST_VALUES_ASIDE = 1 << 25
"""Answers in memory before some go to a temporary file: 256 MiB."""


@dataclass(eq=False)
class _SpilledRows:
    """Rows of one shard that have been read: by query the geounits and their answers.

    n_rows : of all queries so far. n_values : answers in memory.
    """

    n_rows: int = 0
    n_values: int = 0
    chunks: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)
    file: BinaryIO | None = None

    def add(self, query: int, place: np.ndarray, values: np.ndarray) -> None:
        self.chunks.append((query, place, values))
        self.n_rows += len(place)
        self.n_values += values.size

    def spill(self, folder: Path) -> None:
        """Move the buffer to a temporary file."""
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  Closed when taken.
        for query, place, values in self.chunks:
            for array in (np.array(query), place, values):
                np.save(self.file, array)
        self.chunks, self.n_values = [], 0

    def taken(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """All rows, in the order in which they were read; removes the temporary file."""
        if self.file is not None:
            size = self.file.tell()
            self.file.seek(0)
            while self.file.tell() < size:
                query, place, values = (np.load(self.file) for _ in range(3))
                yield int(query), place, values
            self.file.close()
        yield from self.chunks


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
            is_private=settings.is_private,
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
    is_measured = ~level.bypassed
    starts = np.array([shard.start for shard in shards])
    n_measured = np.add.reduceat(is_measured.astype(np.int64), starts)
    aside = {position: _SpilledRows() for position in range(len(shards))}
    scratch.mkdir(parents=True, exist_ok=True)
    for position in np.flatnonzero((n_measured == 0) | (not queries)).tolist():
        aside.pop(position)
        yield shards[position], {}
    if not queries:
        return
    for query, place, values in _answers(folder, universe, level, queries):
        of_row = np.searchsorted(starts, place, side="right") - 1
        for position in np.unique(of_row).tolist():
            rows = np.flatnonzero(of_row == position)
            aside[position].add(query, place[rows], values[rows])
        for position in np.unique(of_row).tolist():
            if aside[position].n_rows == n_measured[position] * len(queries):
                found = aside.pop(position)
                shard = shards[position]
                yield shard, _ordered(found, shard, is_measured, queries)
        while sum(one.n_values for one in aside.values()) > MOST_VALUES_ASIDE:
            max(aside.values(), key=lambda one: one.n_values).spill(scratch)
    if aside:
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
    index = CodeIndex.of(level.geocode)
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


def _ordered(
    found: _SpilledRows, shard: Shard, is_measured: np.ndarray, queries: Sequence[MarginalQuery]
) -> Mapping[MarginalQuery, np.ndarray]:
    """The answers of a shard's measured geounits in the order of the spine, by query."""
    own = is_measured[shard.start : shard.stop]
    row = np.cumsum(own) - 1
    answers = {query: np.zeros((int(own.sum()), query.n_rows), dtype=np.int64) for query in queries}
    for position, place, values in found.taken():
        answers[queries[position]][row[place - shard.start]] = values
    return answers


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
