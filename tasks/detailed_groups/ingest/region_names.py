"""Names of regions, if the settings give a file of them: public, and kept with the run.

The file is pipe-delimited text with the columns REGION_TYPE, REGION_ID and REGION_NAME.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.stamps import write_parquet
from ...tables.sources import InputFile, read_public_text
from ..workload.regions import REGION_TYPES

COLUMNS = ("REGION_TYPE", "REGION_ID", "REGION_NAME")
RUN_FILE = "region_names.parquet"


def read_names(address: str) -> dict[tuple[str, str], str]:
    """The names in a file, by region type and id.

    Raises InputRefused for other columns, an unknown region type, or a region that is named twice
    or not at all.
    """
    file = InputFile("region_names", address, address.rpartition("/")[2])
    lines = read_public_text(file).splitlines()
    if not lines or lines[0].split("|") != list(COLUMNS):
        raise InputRefused(
            f"{file.name}: the first line must be {'|'.join(COLUMNS)}; correct the columns."
        )
    names: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("|")
        if len(fields) != len(COLUMNS) or fields[0] not in REGION_TYPES or not all(fields):
            raise InputRefused(
                f"{file.name}: line {number} must have a region type ({', '.join(REGION_TYPES)}), "
                "an id and a name; correct it."
            )
        if (fields[0], fields[1]) in names:
            raise InputRefused(
                f"{file.name}: line {number} names {fields[0]} {fields[1]} again; keep one name."
            )
        names[fields[0], fields[1]] = fields[2]
    return names


def write_run_names(run: RunDirectory, names: Mapping[tuple[str, str], str]) -> None:
    """Keep the names with the run's public geography."""
    rows = [(*region, name) for region, name in names.items()]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    write_parquet(run.root / "spine" / RUN_FILE, pa.table(arrays, names=list(COLUMNS)))


def read_run_names(run: RunDirectory) -> dict[tuple[str, str], str]:
    """The names kept with a run; empty if it was given none."""
    path = run.root / "spine" / RUN_FILE
    if not path.exists():
        return {}
    kinds, ids, names = (pq.read_table(path)[name].to_pylist() for name in COLUMNS)
    return {(kind, own): name for kind, own, name in zip(kinds, ids, names, strict=True)}
