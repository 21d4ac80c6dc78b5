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

NAME = "released_universes_agree"


@dataclass(frozen=True)
class AgreeingRows:
    """Rows of a file of microdata: those whose columns have one of the given codes, and the columns
    that together spell their area.
    """

    file: Path
    area: Sequence[str]
    codes: Mapping[str, Sequence[str]]


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
                f"area {areas[i]} has {rows[i]:,} rows of {expected.rows.file.name} for "
                f"{others[i]:,} of {expected.others.file.name}"
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
    """Codes of areas, and their numbers of rows."""
    names = [*rows.area, *rows.codes]
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
            code = pc.binary_join_element_wise(*columns, "")
            parts.append(pa.table({"area": code}).group_by("area").aggregate([([], "count_all")]))
    if not parts:
        return np.empty(0, dtype=str), np.empty(0, dtype=np.int64)
    summed = pa.concat_tables(parts).group_by("area").aggregate([("count_all", "sum")])
    summed = summed.sort_by("area")
    area = np.array(summed["area"].to_pylist(), dtype=str)
    return area, summed["count_all_sum"].to_numpy().astype(np.int64)
