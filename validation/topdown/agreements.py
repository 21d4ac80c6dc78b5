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
from .descriptions import SEPARATOR

NAME = "released_universes_agree"


@dataclass(frozen=True)
class AgreeingRows:
    """Rows of a file of microdata: those whose columns have one of the given codes, and the columns
    that together spell their area. `count` is the column with the number of a row's records.
    """

    file: Path
    area: Sequence[str]
    codes: Mapping[str, Sequence[str]]
    count: str | None = None


@dataclass(frozen=True)
class ExpectedAgreement:
    """In every area, at most one of `rows` for each of `others`, at most `at_most` of which are
    for each of `rows`.
    """

    universe: str
    rows: AgreeingRows
    others: AgreeingRows
    at_most: int


def check_agreement(expected: ExpectedAgreement) -> Outcome:
    """Count the rows of both files by area, and compare them area by area."""
    failures, n_areas = Failures(), 0
    with unusable_files_fail(failures):
        areas, rows, others = agreeing_counts(expected.rows, expected.others)
        n_areas = len(areas)
        failures.add_each(
            (rows > others) | (others > expected.at_most * rows),
            lambda i: (
                f"area {areas[i].replace(SEPARATOR, ' ')} has {rows[i]:,} records of "
                f"{expected.rows.file.name} for {others[i]:,} of {expected.others.file.name}"
            ),
        )
    detail = f"records of both are possible together in each of {n_areas:,} areas with any"
    return failures.outcome(NAME, expected.universe, detail)


def agreeing_counts(
    rows: AgreeingRows, others: AgreeingRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of the areas with rows of either, and the numbers of both there, `(n,)` each."""
    (codes, counts), (other_codes, other_counts) = _counted(rows), _counted(others)
    areas = np.union1d(codes, other_codes)
    found = []
    for own, number in ((codes, counts), (other_codes, other_counts)):
        of_area = np.zeros(len(areas), dtype=np.int64)
        of_area[np.searchsorted(areas, own)] = number
        found.append(of_area)
    return areas, found[0], found[1]


def _counted(rows: AgreeingRows) -> tuple[np.ndarray, np.ndarray]:
    """Codes of areas, and their numbers of records."""
    names = [*rows.area, *rows.codes, *([rows.count] if rows.count else [])]
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
                if not table.num_rows:
                    break
            columns = [pc.cast(table[name], pa.string()) for name in rows.area]
            # Areas that have no code of a geolevel are told by those of the others.
            code = pc.binary_join_element_wise(
                *columns, SEPARATOR, null_handling="replace", null_replacement=""
            )
            number = table[rows.count] if rows.count else pa.repeat(1, table.num_rows)
            parts.append(_summed(pa.table({"area": code, "number": number})))
    if not parts:
        return np.empty(0, dtype=str), np.empty(0, dtype=np.int64)
    summed = _summed(pa.concat_tables(parts)).sort_by("area")
    return np.array(summed["area"].to_pylist(), dtype=str), summed["number"].to_numpy()


def _summed(table: pa.Table) -> pa.Table:
    """The numbers of each area, added up."""
    summed = table.group_by("area").aggregate([("number", "sum")])
    return summed.rename_columns({"number_sum": "number"})
