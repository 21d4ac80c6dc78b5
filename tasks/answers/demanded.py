"""Files of noisy measurements that were drawn on demand: some rows of each query.

`measurements/<universe>/<geolevel>/on_demand/<shard>.parquet` holds `geocode` string, `query_name`
string (`sex * age_dpq`), `row` list<int64>, the rows of the query that were measured, ascending,
`value` list<int64>, their noisy answers, `variance` double and `plb` string. They are separate from
the measurements of all rows, `dpqueries`, so that partial answers are not taken for whole ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..runs.stamps import INTEGER_LIST

DEMANDED_SCHEMA = pa.schema(
    [
        pa.field("geocode", pa.string(), nullable=False),
        pa.field("query_name", pa.string(), nullable=False),
        pa.field("row", INTEGER_LIST, nullable=False),
        pa.field("value", INTEGER_LIST, nullable=False),
        pa.field("variance", pa.float64(), nullable=False),
        pa.field("plb", pa.string(), nullable=False),
    ]
)


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
