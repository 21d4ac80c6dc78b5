"""Writing the requested intervals of a finished run.

Intervals as tables: a row for every answer of every geounit or area.

Columns: `geocode` (for areas, their name), `query`, a column for each attribute or coarsening that
a query of the table keeps, with the labels of levels; `estimate`, `std_dev`; `lower`, `upper`,
whole numbers; `bounded_lower`, `bounded_upper`, the same with known bounds of the counts; where
shares are asked for, `share`, `share_std_dev`, `share_lower`, `share_upper`. All but the first ones
are null where the measurements do not determine an answer.

For pairs of areas, `first` and `second` replace the geocode; `first_estimate`, `second_estimate`;
their `difference` and their `ratio` with `_std_dev`, `_lower` and `_upper` each; and `p_value`, the
probability of a difference as large in size if there were none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ....geography.levels import Spine
from ...census.invariants import read_geography
from ...census.queries import MarginalQuery, Schema, in_schema_order, label_parts, marginal_query
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused, refuse_errors
from ...runs.stamps import table_rows
from ...tables.columns import coded_texts
from ..estimation.largest_solve import gigabytes
from ..estimation.spine_estimates import GroupedEstimates
from ..paths import geography_file
from ..settings import TopdownSettings
from ..spine.build import areas_of_level, levels_of_run
from .answers import Listener, ProductAnswers, ignore_progress
from .areas import (
    KnownBlocks,
    NamedAreas,
    area_covariances,
    area_estimates,
    listed_areas,
    points_of,
    read_areas,
    read_pairs,
)
from .intervals import CellAnswers, differences, ratios, shares
from .run_posterior import RunPosterior, refuse_large_posterior

AreasOf: TypeAlias = str | Path | pd.DataFrame | Mapping[str, Any] | None
"""Areas of intervals: a level by name, a file of areas, or areas as data; None for all levels."""

SHARES = ("share", "share_std_dev", "share_lower", "share_upper")
WHOLE_NUMBERS = ("lower", "upper", "bounded_lower", "bounded_upper")
COMPARED = ("", "_std_dev", "_lower", "_upper")
ROWS_AT_ONCE = 1 << 20
"""Rows of a table that are made and written together."""


@dataclass(frozen=True, eq=False)
class IntervalRequest:
    """Queries for every geounit or area: the coverage of the intervals, and the query for shares,
    if requested.

    Raises InputRefused for a query whose answers are not parts of its denominator's.
    """

    schema: Schema
    queries: tuple[MarginalQuery, ...]
    level: float
    share_of: MarginalQuery | None = None

    def __post_init__(self) -> None:
        for query in self.queries:
            if self.share_of is not None and not query.refines(self.share_of):
                raise InputRefused(
                    f"An answer of {query.name!r} is no part of one of {self.share_of.name!r}; "
                    "take shares of a query with the same attributes or fewer."
                )

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """Columns of labels, for the attributes that some query has."""
        parts = [part for query in self.queries for part in label_parts(self.schema, query.name)]
        attributes = self.schema.attributes
        ordered = sorted(parts, key=lambda part: attributes.index(part[1]))
        return tuple(dict.fromkeys(name for name, _, _ in ordered))

    @property
    def seen(self) -> tuple[MarginalQuery, ...]:
        """The queries whose answers are needed."""
        return self.queries if self.share_of is None else (*self.queries, self.share_of)

    def labels(self, query: MarginalQuery, n: int) -> dict[str, pa.Array]:
        """Columns of the query's name and labels for n geounits or areas."""
        rows = np.unravel_index(np.arange(query.n_rows), query.shape)
        columns = {"query": coded_texts(np.zeros(n * query.n_rows), [query.name])}
        columns |= {name: pa.nulls(n * query.n_rows, _TEXT) for name in self.label_names}
        for name, attribute, labels in label_parts(self.schema, query.name):
            axis = rows[self.schema.attributes.index(attribute)]
            columns[name] = coded_texts(np.tile(axis, n), labels)
        return columns


_TEXT = pa.dictionary(pa.int32(), pa.string())


def _geolevel_tables(
    found: RunPosterior, asked: IntervalRequest, depth: int, estimates: GroupedEstimates
) -> Iterator[pa.Table]:
    geocode = found.spine.geolevels[depth].geocode
    for query in asked.queries:
        answers = _with_whole(found, asked, query)
        size = max(1, ROWS_AT_ONCE // query.n_rows)
        for start in range(0, len(geocode), size):
            rows = np.arange(start, min(start + size, len(geocode)))
            of_rows = CellAnswers.of_geounits(found, answers, depth, estimates, rows)
            yield _table(asked, query, geocode[rows], of_rows)


def area_intervals(
    found: RunPosterior, asked: IntervalRequest, areas: NamedAreas
) -> Iterator[pa.Table]:
    """Parts of the table for areas that are lists of blocks."""
    for query in asked.queries:
        answers = _with_whole(found, asked, query)
        yield _table(asked, query, areas.names, CellAnswers.of_areas(found, answers, areas.blocks))


def comparisons(
    found: RunPosterior,
    asked: IntervalRequest,
    areas: NamedAreas,
    first: np.ndarray,
    second: np.ndarray,
) -> Iterator[pa.Table]:
    """Parts of the table that compares area with area: `first` and `second` are their numbers."""
    blocks = found.blocks
    pairs = areas.blocks.tuples((first, second))
    for query in asked.queries:
        answers = ProductAnswers.of(found.algebra, query.matrix)
        number = np.arange(answers.n_answers)
        values = area_estimates(blocks, answers, areas.blocks)
        covariances = area_covariances(found.posterior, answers, pairs)
        variances = covariances.variances(0), covariances.variances(1)
        between = covariances.covariance((0, number), (1, number))
        is_known = covariances.is_known(0) & covariances.is_known(1)
        one, other = values[first], values[second]
        given = one, other, variances, between, asked.level
        difference, p_value = differences(*given, found.mechanism)
        ratio = ratios(*given)
        n = query.n_rows
        columns = {
            "first": coded_texts(np.repeat(first, n), areas.names),
            "second": coded_texts(np.repeat(second, n), areas.names),
            **asked.labels(query, len(first)),
        }
        numbers = {"first_estimate": one, "second_estimate": other}
        for name, compared in (("difference", difference), ("ratio", ratio)):
            ends = zip(COMPARED, compared, strict=True)
            numbers |= {name + what: end for what, end in ends}
        numbers["p_value"] = p_value
        for name, value in numbers.items():
            is_whole = name in ("difference_lower", "difference_upper")
            columns[name] = _numbers(value, is_known, is_whole=is_whole)
        yield pa.table(columns)


@dataclass(frozen=True)
class IntervalFile:
    """A file of intervals: the number of its rows, and of undetermined rows among them."""

    path: Path
    rows: int
    undetermined: int

    def sentence(self) -> str:
        """The message of a command.

        >>> IntervalFile(Path("a.csv"), 1_200, 0).sentence()
        'a.csv: 1,200 intervals'
        >>> IntervalFile(Path("a.csv"), 48, 48).sentence()[:46]
        'a.csv: 0 intervals; 48 of 48 rows are blank, s'
        """
        words = f"{self.path}: {self.rows - self.undetermined:,} intervals"
        if not self.undetermined:
            return words
        return (
            f"{words}; {self.undetermined:,} of {self.rows:,} rows are blank, since no measurement "
            "determines their answers: ask for queries that were measured, or that coarsen these"
        )


def write_intervals(path: Path, parts: Iterator[pa.Table], run: RunDirectory) -> IntervalFile:
    """Write the parts of a table as CSV or, by any other name, as Parquet, with the run's stamp."""
    n_rows = n_blank = 0
    first = next(parts)
    column = "difference" if "difference" in first.column_names else "estimate"
    with table_rows(path, first.schema, run) as writer:
        for table in chain([first], parts):
            writer.write_table(table)
            n_rows += table.num_rows
            n_blank += table[column].null_count
    return IntervalFile(path, n_rows, n_blank)


def _with_whole(
    found: RunPosterior, asked: IntervalRequest, query: MarginalQuery
) -> ProductAnswers:
    """The query's answers, followed by the denominators of shares."""
    matrix = query.matrix
    if asked.share_of is not None:
        matrix = sparse.vstack([matrix, asked.share_of.matrix])
    return ProductAnswers.of(found.algebra, matrix)


def _table(
    asked: IntervalRequest, query: MarginalQuery, names: np.ndarray, of: CellAnswers
) -> pa.Table:
    """The rows of one query for some geounits, whose answers may be followed by their wholes."""
    n = query.n_rows
    ends, is_known = of.intervals(asked.level), of.is_known[:, :n]
    values = {"estimate": of.estimate, "std_dev": np.sqrt(of.variance)}
    values |= {name: getattr(ends, name) for name in WHOLE_NUMBERS}
    columns = {
        "geocode": coded_texts(np.repeat(np.arange(len(names)), n), names),
        **asked.labels(query, len(names)),
    }
    for name, value in values.items():
        columns[name] = _numbers(value[:, :n], is_known, is_whole=name in WHOLE_NUMBERS)
    if asked.share_of is not None and of.covariances is not None:
        part, whole = np.arange(n), np.zeros(n, dtype=np.int64)
        whole[query.row_of_cell] = n + asked.share_of.row_of_cell  # Each answer's denominator.
        found_shares = shares(
            of.estimate[:, part],
            of.estimate[:, whole],
            (of.variance[:, part], of.variance[:, whole]),
            of.covariances.covariance((0, part), (0, whole)),
            asked.level,
        )
        for name, end in zip(SHARES, found_shares, strict=True):
            columns[name] = _numbers(end, is_known & of.is_known[:, whole])
    return pa.table(columns)


def _numbers(values: np.ndarray, is_known: np.ndarray, *, is_whole: bool = False) -> pa.Array:
    """A column, null where a value is not known or is not a number."""
    values = np.broadcast_to(values, is_known.shape).ravel()
    is_null = ~is_known.ravel() | np.isnan(values)
    if is_whole:
        values = values.astype(np.int64)
    return pa.array(values, mask=is_null)


def write_run_intervals(
    run: RunDirectory,
    settings: TopdownSettings,
    queries: Sequence[str],
    where: AreasOf = None,
    *,
    universe: str | None = None,
    share_of: str | None = None,
    compare: Path | None = None,
    level: float = 0.9,
    out: Path | None = None,
    listener: Listener = ignore_progress,
) -> Iterator[IntervalFile]:
    """Write intervals of one universe; yields each file, and reports progress to `listener`.

    `where` is the name of a level (`levels_of_run`), or own areas: the path of a file, or areas as
    `listed_areas` takes them; None for every level. Without `out` the files go to
    `intervals/<universe>/<level>.parquet` of the run or to `intervals/entities.parquet`; for pairs,
    which the file `compare` lists, to files whose names end in `_comparisons.parquet`.

    Raises InputRefused for a query, a universe, a level or a block that the run does not have, for
    a `level` that is no probability, for `out` and pairs without one level or areas, and for pairs
    with shares.
    """
    universe = universe or settings.run.universes[0]
    if universe not in settings.run.universes:
        raise InputRefused(
            f"The run has no universe {universe!r}; it has {', '.join(settings.run.universes)}."
        )
    if not 0.0 < level < 1.0:
        raise InputRefused(f"A level of {level} is no probability; 0.9 and 0.95 are usual.")
    if out is not None and where is None:
        raise InputRefused("One file takes one geolevel; give --geolevel or --entities with --out.")
    if compare is not None and where is None:
        raise InputRefused(
            "Pairs are of geounits of one geolevel or of areas; give --geolevel or --entities with "
            "--compare."
        )
    if compare is not None and share_of is not None:
        raise InputRefused("Pairs have no shares; leave --share-of or --compare out.")
    schema = settings.schema_of(universe)
    whole = None if share_of is None else _query(schema, share_of)
    asked = IntervalRequest(schema, tuple(_query(schema, name) for name in queries), level, whole)
    listed = None
    if where is not None and not isinstance(where, str):
        listed = _read_listed_areas(run, settings, where)
    pairs = None if compare is None else read_pairs(compare, settings.written)
    found = RunPosterior.read(run, settings, universe, asked.seen, listener)
    refuse_large_posterior(universe, found.size)
    n, memory = found.size.geounits, gigabytes(found.size.peak)
    what = f"estimates and covariances of {n:,} areas and all above them"
    words = f"combining the measurements of {universe}: {what}, in up to {memory} of memory"
    listener(words, 0, 0)
    folder = run.root / "intervals"
    tables: Iterable[tuple[Path, Iterator[pa.Table]]]
    if compare is None and listed is None:
        names = levels_of_run(run, settings, found.spine) if where is None else [str(where)]
        tables = _level_files(run, settings, found, asked, folder / universe, names)
    else:
        stem = folder / universe / str(where)
        if listed is not None:
            stem, areas = folder / "entities", NamedAreas.listed(*listed, found.spine.block_geocode)
        else:
            areas = _areas_of_level(run, settings, found.spine, str(where))
        table = area_intervals(found, asked, areas)
        if pairs is not None and compare is not None:
            stem = stem.with_name(f"{stem.name}_comparisons")
            first, second = (areas.numbers(pairs[name], compare) for name in pairs)
            table = comparisons(found, asked, areas, first, second)
        tables = [(stem.with_name(f"{stem.name}.parquet"), table)]
    for path, table in tables:
        yield write_intervals(out or path, table, run)


def _areas_of_level(
    run: RunDirectory, settings: TopdownSettings, spine: Spine, name: str
) -> NamedAreas:
    own, units = areas_of_level(run, settings, spine, name)
    if units is None:
        return NamedAreas.of_geolevel(spine, own)
    return NamedAreas.of_blocks(units.path, units.number)


def _level_files(
    run: RunDirectory,
    settings: TopdownSettings,
    found: RunPosterior,
    asked: IntervalRequest,
    folder: Path,
    names: Sequence[str],
) -> Iterator[tuple[Path, Iterator[pa.Table]]]:
    """The file of each level, and the parts of its table."""
    named: dict[str, str] = {}
    for name in names:
        own, units = areas_of_level(run, settings, found.spine, name)
        if units is None:
            named[own] = name
        else:
            areas = NamedAreas.of_blocks(units.path, units.number)
            yield folder / f"{name}.parquet", area_intervals(found, asked, areas)
    last = max(map(found.spine.names.index, named), default=-1)
    for depth, estimates in islice(found.posterior.down(), last + 1):
        own = found.spine.names[depth]
        if own in named:
            table = _geolevel_tables(found, asked, depth, estimates)
            yield folder / f"{named[own]}.parquet", table


def _read_listed_areas(
    run: RunDirectory, settings: TopdownSettings, given: Path | pd.DataFrame | Mapping[str, Any]
) -> tuple[pd.DataFrame, KnownBlocks]:
    """Areas as lists of blocks, and the blocks that the run knows; their points come from the last
    geolevel's entities.
    """
    declared, last = settings.compiled_census.geography, settings.compiled_census.code_column
    if isinstance(given, Path):
        listed = read_areas(given, last, settings.written)
        return listed, KnownBlocks.of(read_geography(geography_file(run)), last)
    geography = read_geography(geography_file(run))
    entity, points = declared.entities.get(declared.geolevels[-1]), None
    if entity is not None and entity.latitude is not None and entity.longitude is not None:
        points = points_of(geography, entity.latitude, entity.longitude)
    return listed_areas(given, points, last), KnownBlocks.of(geography, last)


def _query(schema: Schema, name: str) -> MarginalQuery:
    with refuse_errors():
        return marginal_query(schema, in_schema_order(schema, name))
