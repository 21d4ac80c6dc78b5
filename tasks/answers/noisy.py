"""Noisy-measurement and constraint files: Parquet, one row per geounit and query.

`measurements/<universe>/<geolevel>/dpqueries/<shard>.parquet` holds `geocode` string,
`query_name` string (`sex * age_dpq`), `value` list<int64> row-major in schema order,
`variance` double, `plb` string (rho, or epsilon, spent on the answers, as `p/q`).
`measurements/<universe>/<geolevel>/constraints/<shard>.parquet` holds `geocode`, `query_name`
(`kind_total_ub_con`), `sign` (`=`, `<=` or `>=`), `value`.

`measurements/<universe>/<geolevel>/on_demand/<shard>.parquet` has what was drawn on demand, some
rows of each query: the columns of `dpqueries` and `row` list<int64>, the rows that were measured,
ascending. The file is separate, so that partial answers are not taken for whole ones.

Rows are streamed in row groups of some megabytes, each a run of geounits, query after query, so
that memory stays bounded on both sides and a reader of a few geounits skips most of a file. Values
are dictionary-encoded and compressed with zstd, about 1.4 times the entropy of the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...geography.texts import TextIndex
from ..runs.stamps import INTEGER_LIST, schema_without_nulls, write_parquet_once

SIGNS = ("=", "<=", ">=")

DPQUERY_SUFFIX = "_dpq"

DPQUERIES_SCHEMA = schema_without_nulls(
    geocode=pa.string(),
    query_name=pa.string(),
    value=INTEGER_LIST,
    variance=pa.float64(),
    plb=pa.string(),
)
_CONSTRAINTS_SCHEMA = schema_without_nulls(
    geocode=pa.string(), query_name=pa.string(), sign=pa.string(), value=INTEGER_LIST
)


@dataclass(frozen=True)
class NoisyAnswers:
    """One query measured on some geounits.

    `geocode` (n,), `values` (n, n_rows) int64, `variance` (n,), `plb` (n,) of `p/q`. As read, for
    requested geounits, a geounit that was not measured has values 0, infinite variance and plb "0".
    """

    query_name: str
    geocode: np.ndarray
    values: np.ndarray
    variance: np.ndarray
    plb: np.ndarray


@dataclass(frozen=True)
class Constraint:
    """One constraint on some geounits: Q x `sign` values; `geocode` (n,), `values` (n, n_rows).

    holds : (n,), false where a requested geounit has no such constraint, and its values are 0; None
        where all have it, as in all written constraints.
    """

    query_name: str
    sign: str
    geocode: np.ndarray
    values: np.ndarray
    holds: np.ndarray | None = None


def write_measurements(path: Path, groups: Iterable[Sequence[NoisyAnswers]]) -> Path:
    """Write noisy measurements at `path`, one row group for each item of `groups`.

    An existing file is kept, and `groups` is not consumed. Fresh draws go through
    `ledger.charging.FileDraw.publish` instead.
    """
    return write_parquet_once(path, DPQUERIES_SCHEMA, measured_batches(groups))


def measured_batches(groups: Iterable[Sequence[NoisyAnswers]]) -> Iterator[pa.RecordBatch]:
    """Rows of noisy measurements, as `DPQUERIES_SCHEMA` has them, one batch for each group."""
    for group in groups:
        yield _record_batch(
            group,
            DPQUERIES_SCHEMA,
            variance=pa.array(np.concatenate([item.variance for item in group])),
            plb=_strings(np.concatenate([item.plb for item in group])),
        )


def write_constraints(path: Path, constraints: Iterable[Constraint]) -> Path:
    """Write constraints at `path`, one row group each; an existing file is kept.

    Those of a run that is not private carry the stamp.

    Raises ValueError for a sign other than `=`, `<=`, `>=`.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for constraint in constraints:
            if constraint.sign not in SIGNS:
                raise ValueError(f"{constraint.query_name}: unknown sign {constraint.sign!r}")
            sign = np.full(len(constraint.geocode), constraint.sign, dtype=object)
            yield _record_batch([constraint], _CONSTRAINTS_SCHEMA, sign=_strings(sign))

    return write_parquet_once(path, _CONSTRAINTS_SCHEMA, batches())


def read_measurements(
    paths: Path | Iterable[Path], geocodes: Sequence[str] | np.ndarray
) -> dict[str, NoisyAnswers]:
    """Noisy answers of the given geounits by query name, aligned to `geocodes`.

    Row groups that hold none of the geounits are skipped. Raises ValueError if an answer appears
    twice.
    """
    geocode = np.asarray(geocodes, dtype=object)
    found: dict[str, NoisyAnswers] = {}
    for table, query_name, positions, values in _runs(paths, geocodes, DPQUERIES_SCHEMA):
        if query_name not in found:
            found[query_name] = NoisyAnswers(
                query_name,
                geocode,
                np.zeros((len(geocodes), values.shape[1]), dtype=np.int64),
                np.full(len(geocodes), np.inf),
                np.full(len(geocodes), "0", dtype=object),
            )
        query = found[query_name]
        if np.isfinite(query.variance[positions]).any():
            raise ValueError(f"{query_name} was measured twice on a geounit")
        query.values[positions] = values
        query.variance[positions] = table["variance"].to_numpy()
        plb = table["plb"].chunk(0)
        query.plb[positions] = np.array(plb.dictionary.to_pylist(), object)[plb.indices.to_numpy()]
    return found


def read_constraints(
    paths: Path | Iterable[Path], geocodes: Sequence[str] | np.ndarray
) -> dict[tuple[str, str], Constraint]:
    """Constraints of the given geounits by query name and sign, aligned to `geocodes`.

    Raises ValueError if a constraint appears twice.
    """
    geocode = np.asarray(geocodes, dtype=object)
    found: dict[tuple[str, str], Constraint] = {}
    held: dict[tuple[str, str], np.ndarray] = {}
    for table, query_name, positions, values in _runs(paths, geocodes, _CONSTRAINTS_SCHEMA):
        signs = table["sign"].chunk(0)
        number, names = signs.indices.to_numpy(), signs.dictionary.to_pylist()
        for sign in np.unique(number):
            key, has_sign = (query_name, names[sign]), number == sign
            if key not in found:
                held[key] = np.zeros(len(geocode), dtype=bool)
                none = np.zeros((len(geocode), values.shape[1]), dtype=np.int64)
                found[key] = Constraint(*key, geocode, none, held[key])
            if held[key][positions[has_sign]].any():
                raise ValueError(f"{query_name} {sign} constrains a geounit twice")
            found[key].values[positions[has_sign]] = values[has_sign]
            held[key][positions[has_sign]] = True
    return found


def _record_batch(
    group: Sequence[NoisyAnswers | Constraint], schema: pa.Schema, **columns: pa.Array
) -> pa.RecordBatch:
    lengths = np.concatenate([np.full(len(g.geocode), g.values.shape[1]) for g in group])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = np.concatenate([np.ravel(g.values) for g in group]).astype(np.int64, copy=False)
    names = np.repeat(
        np.array([g.query_name for g in group], dtype=object), [len(g.geocode) for g in group]
    )
    arrays: Mapping[str, pa.Array] = {
        "geocode": _strings(np.concatenate([g.geocode for g in group])),
        "query_name": _strings(names),
        "value": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), type=INTEGER_LIST),
        **columns,
    }
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def _strings(values: np.ndarray) -> pa.Array:
    return pa.array(values, type=pa.string())


def _runs(
    paths: Path | Iterable[Path], geocodes: Sequence[str] | np.ndarray, schema: pa.Schema
) -> Iterator[tuple[pa.Table, str, np.ndarray, np.ndarray]]:
    """Runs of rows of one query, limited to the requested geounits.

    Yields the rows without their values, the query name, the position of each row's geounit in
    `geocodes`, and the values (n, n_rows).
    """
    wanted = TextIndex(geocodes)
    texts = [field.name for field in schema if field.type == pa.string()]
    for path in [paths] if isinstance(paths, str | Path) else paths:
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for number in range(file.num_row_groups):
                statistics = file.metadata.row_group(number).column(0).statistics
                if statistics is None:
                    continue  # A shard whose geounits were all bypassed has no rows.
                has_limits = statistics.has_min_max
                near = wanted.between(statistics.min, statistics.max) if has_limits else wanted
                if not len(near):
                    continue
                table = file.read_row_group(number).combine_chunks()
                yield from _runs_of_row_group(table, near)


def _runs_of_row_group(
    table: pa.Table, wanted: TextIndex
) -> Iterator[tuple[pa.Table, str, np.ndarray, np.ndarray]]:
    if not table.num_rows:
        return
    geocode, query, values = (table[name].chunk(0) for name in ("geocode", "query_name", "value"))
    table = table.drop_columns("value")
    positions = wanted.positions(geocode.dictionary)[geocode.indices.to_numpy()]
    query_code = query.indices.to_numpy()
    starts = np.flatnonzero(np.diff(query_code, prepend=-1))
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        kept = np.flatnonzero(positions[start:end] >= 0)
        if not kept.size:
            continue
        run, n = table.slice(start, end - start), int(end - start)
        own = values.slice(start, n).flatten().to_numpy().reshape(n, -1)
        if kept.size < n:
            run, own = run.take(kept), own[kept]
        name = query.dictionary[int(query_code[start])].as_py()
        yield run, name, positions[start:end][kept], own


DEMANDED_SCHEMA = DPQUERIES_SCHEMA.insert(2, pa.field("row", INTEGER_LIST, nullable=False))


@dataclass(frozen=True, eq=False)
class DemandedAnswers:
    """Rows of one query that were measured on some geounits.

    geocode : (n,). starts : (n + 1,) geounit i has the entries from starts[i] to starts[i + 1] of
    `rows`, ascending rows of the query, and of `values`, the noisy answers. variance, plb : (n,) of
    the noise, and `p/q` spent on it. As read, a geounit that was not measured has no rows, infinite
    variance and plb "0".
    """

    query_name: str
    geocode: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    variance: np.ndarray
    plb: np.ndarray

    def of_geounit(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the query that were measured on a geounit, and their answers."""
        part = slice(self.starts[place], self.starts[place + 1])
        return self.rows[part], self.values[part]


def demanded_batches(groups: Iterable[Sequence[DemandedAnswers]]) -> Iterator[pa.RecordBatch]:
    """Rows of groups of answers, as `DEMANDED_SCHEMA` has them, one batch for each query."""
    for part in chain.from_iterable(groups):
        starts = pa.array(part.starts.astype(np.int32))
        arrays = {
            "geocode": pa.array(part.geocode, pa.string()),
            "query_name": pa.array([part.query_name] * len(part.geocode), pa.string()),
            "row": pa.ListArray.from_arrays(starts, pa.array(part.rows), type=INTEGER_LIST),
            "value": pa.ListArray.from_arrays(starts, pa.array(part.values), type=INTEGER_LIST),
            "variance": pa.array(part.variance),
            "plb": pa.array(part.plb, pa.string()),
        }
        yield pa.record_batch(list(arrays.values()), schema=DEMANDED_SCHEMA)


def read_demanded(path: Path, geocode: np.ndarray) -> dict[str, DemandedAnswers]:
    """Answers of the given geounits (n,) by query name, aligned to `geocode`.

    Raises ValueError if a query was measured twice on a geounit.
    """
    table = pq.read_table(path)
    place = pc.index_in(table["geocode"], value_set=pa.array(geocode, pa.string()))
    table = table.append_column("place", place).filter(pc.is_valid(place))
    found = {}
    for name in pc.unique(table["query_name"]).to_pylist():
        part = table.filter(pc.equal(table["query_name"], name)).sort_by("place").combine_chunks()
        places = part["place"].to_numpy()
        if (np.diff(places) == 0).any():
            raise ValueError(f"{name} was measured twice on a geounit")
        n = len(geocode)
        lengths = np.zeros(n, dtype=np.int64)
        variance, plb = np.full(n, np.inf), np.full(n, "0", dtype=object)
        lengths[places] = pc.list_value_length(part["row"]).to_numpy()
        variance[places], plb[places] = part["variance"].to_numpy(), part["plb"].to_numpy()
        rows, values = (pc.list_flatten(part[column]).to_numpy() for column in ("row", "value"))
        starts = np.append(0, np.cumsum(lengths))
        found[name] = DemandedAnswers(name, geocode, starts, rows, values, variance, plb)
    return found
