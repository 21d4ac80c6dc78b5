"""Census tables in the three layouts that the readers accept, and their check."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.cef_tables import CefTables
from spineflow.tasks.census.census_input import CensusInput
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.tables.layouts import LAYOUTS, TableLayout, delimited_text
from spineflow.tasks.topdown.ingest.generate import GeneratedFiles, generate_county


def check_inputs(
    *,
    persons: str | os.PathLike[str],
    units: str | os.PathLike[str],
    geography: str | os.PathLike[str],
    person_schema: Schema | None = PERSONS,
    unit_schema: Schema | None = UNITS,
) -> InputCheck[CensusInput]:
    """Read the three tables and evaluate every rule; a universe without schema is not counted."""
    paths = {"geography": geography, "units": units, "persons": persons}
    schemas = {s.universe: s for s in (person_schema, unit_schema) if s is not None}
    return CefTables.of(CENSUS, schemas, paths).check()


def generate_texts(
    folder: Path, layout: str, *, gzipped: bool = False, **asked: Any
) -> GeneratedFiles:
    """A generated county in a layout: "parquet", "delimited" or "fixed_width"."""
    files = generate_county(folder, **asked)
    if layout == "parquet":
        return files
    found = {}
    for name in ("persons", "units"):
        table = pq.read_table(folder / f"{name}.parquet")
        columns = {column: table[column].to_numpy() for column in table.column_names}
        text = delimited_text(columns)
        if layout == "fixed_width":
            text = fixed_width_text(columns, LAYOUTS[name])
        found[name] = folder / f"{name}.txt{'.gz' if gzipped else ''}"
        found[name].write_bytes(gzip.compress(text) if gzipped else text)
    return replace(files, **found)


def fixed_width_text(columns: dict[str, np.ndarray], layout: TableLayout) -> bytes:
    """Lines of the layout's length, filled with spaces between columns."""
    line_length = layout.line_length
    n_rows = len(next(iter(columns.values())))
    lines = np.full((n_rows, line_length + 1), ord(" "), dtype=np.uint8)
    lines[:, -1] = ord("\n")
    for column in layout.fields:
        if column.name not in columns:
            continue
        values = columns[column.name]
        start, end = column.place
        width = end - start
        if np.issubdtype(values.dtype, np.integer):
            powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
            digits = values.astype(np.int64)[:, None] // powers % 10
            lines[:, start:end] = digits + ord("0")
        else:
            characters = values.astype(f"S{width}").view(np.uint8).reshape(n_rows, width)
            lines[:, start:end] = np.where(characters, characters, ord(" "))
    return lines.tobytes()
