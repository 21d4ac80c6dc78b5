"""Whether the released rows of two universes leave households possible, from their rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..outcome import Failures, Outcome
from ..run_files import UnusableRunFile, unusable_files_fail
from .microdata import SEPARATOR


@dataclass(frozen=True)
class AgreeingRows:
    """Rows of a file of microdata: those whose columns have one of the given codes, and the columns
    that together spell their area. `count` is the column with the number of a row's records.

    kinds : further columns by which rows are told apart, with the word for each of their codes.
    weights : a column and, by its codes, how many a record counts for; by default one.
    """

    file: Path
    area: Sequence[str]
    codes: Mapping[str, Sequence[str]]
    count: str | None = None
    kinds: Sequence[tuple[str, Mapping[str, str]]] = ()
    weights: tuple[str, Mapping[str, int]] | None = None


@dataclass(frozen=True)
class ExpectedNumbers:
    """In every area, and of every kind there, at most as many of `rows` as `most`, and so many that
    `least` are no more than `at_most` for each of them; both are of another file.
    """

    check: str
    universe: str
    rows: AgreeingRows
    least: AgreeingRows
    most: AgreeingRows
    at_most: int = 1


def check_agreement(expected: ExpectedNumbers) -> Outcome:
    """Count the rows of both files by area, and compare them area by area."""
    failures, n_areas = Failures(), 0
    with unusable_files_fail(failures):
        areas, (rows, least, most) = agreeing_counts(expected.rows, expected.least, expected.most)
        n_areas = len(areas)
        least = -(-least // expected.at_most)
        failures.add_each(
            (rows < least) | (rows > most),
            lambda i: (
                f"area {areas[i].replace(SEPARATOR, ' ')} has {rows[i]:,} records of "
                f"{expected.rows.file.name} where those of {expected.most.file.name} are for "
                f"{least[i]:,} to {most[i]:,}"
            ),
        )
    parts = "areas by kind" if expected.rows.kinds else "areas"
    detail = f"records of both are possible together in each of {n_areas:,} {parts} with any"
    return failures.outcome(expected.check, expected.universe, detail)


def agreeing_counts(*files: AgreeingRows) -> tuple[np.ndarray, list[np.ndarray]]:
    """Codes of the areas with rows of any, and the numbers of each there, `(n,)`."""
    counted = [_counted(rows) for rows in files]
    areas = np.unique(np.concatenate([codes for codes, _ in counted]))
    found = []
    for own, number in counted:
        of_area = np.zeros(len(areas), dtype=np.int64)
        of_area[np.searchsorted(areas, own)] = number
        found.append(of_area)
    return areas, found


def _counted(rows: AgreeingRows) -> tuple[np.ndarray, np.ndarray]:
    """Codes of areas, and their numbers of records."""
    names = [*rows.area, *rows.codes, *([rows.count] if rows.count else [])]
    names += [name for name, _ in rows.kinds] + ([rows.weights[0]] if rows.weights else [])
    names = list(dict.fromkeys(names))
    parts = []
    with pq.ParquetFile(rows.file) as file:
        lacking = [name for name in names if name not in file.schema_arrow.names]
        if lacking:
            raise UnusableRunFile(f"{rows.file.name} has no column {lacking[0]}")
        for batch in file.iter_batches(columns=names):
            table = pa.Table.from_batches([batch])
            for name, codes in rows.codes.items():
                own = pc.cast(table[name], pa.string())
                table = table.filter(pc.is_in(own, value_set=pa.array(list(codes), pa.string())))
            columns = [pc.cast(table[name], pa.string()) for name in rows.area]
            columns += [_looked_up(table, name, words, pa.string()) for name, words in rows.kinds]
            # Areas that have no code of a geolevel are told by those of the others.
            code = pc.binary_join_element_wise(
                *columns, SEPARATOR, null_handling="replace", null_replacement=""
            )
            number = table[rows.count] if rows.count else pa.repeat(1, table.num_rows)
            if rows.weights is not None:
                number = pc.multiply(number, _looked_up(table, *rows.weights, pa.int64()))
            parts.append(_summed(pa.table({"area": code, "number": number})))
    if not parts:
        return np.empty(0, dtype=str), np.empty(0, dtype=np.int64)
    summed = _summed(pa.concat_tables(parts)).sort_by("area")
    return np.array(summed["area"].to_pylist(), dtype=str), summed["number"].to_numpy()


def _looked_up(
    table: pa.Table, name: str, words: Mapping[str, object], kind: pa.DataType
) -> pa.ChunkedArray:
    """What is told for the code of each row; raises UnusableRunFile for a code without any."""
    own = pc.cast(table[name], pa.string())
    place = pc.index_in(own, value_set=pa.array(list(words), pa.string()))
    if place.null_count:
        raise UnusableRunFile(f"a code of the column {name} is not known")
    return pa.chunked_array([pa.array(list(words.values()), kind).take(place.combine_chunks())])


def _summed(table: pa.Table) -> pa.Table:
    """The numbers of each area, added up."""
    summed = table.group_by("area").aggregate([("number", "sum")])
    return summed.rename_columns({"number_sum": "number"})
