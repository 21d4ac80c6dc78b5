"""The redistricting tables of a release, one file a summary level.

A row is a geographic entity, a column a variable under its public name, after the entity's GEOID,
its geocode and the parts of the geocode. Rows ascend by geocode. Parquet and comma-separated text
hold the same; a run that is not private is stamped as microdata are.

Memory is that of the block histograms and a batch of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.tasks.census.microdata import count_microdata
from spineflow.tasks.runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from spineflow.tasks.topdown.release.tabulations.levels import (
    SUMMARY_LEVELS,
    Entities,
    SummaryLevel,
    entities_of,
)
from spineflow.tasks.topdown.release.tabulations.names import NAME, named_columns
from spineflow.tasks.topdown.release.tabulations.variables import variable_matrix, variables_of

TABLES = "tables"
"""Folder of the tables in a release."""

ROWS_PER_BATCH = 1 << 14


@dataclass(frozen=True, eq=False)
class LevelTable:
    """The tables of one summary level, computed when asked for."""

    entities: Entities
    variables: tuple[str, ...]
    histograms: tuple[sparse.csr_array, ...]
    """One of shape `(n_entities, n_cells)` for each universe."""
    matrices: tuple[sparse.csr_array, ...]
    """What turns the histograms into variables, shape `(n_cells, n_variables)` each."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Variables of the entities from `start` to `stop`, int64 `(stop - start, n_variables)`."""
        return np.hstack(
            [
                (histogram[start:stop] @ matrix).toarray()
                for histogram, matrix in zip(self.histograms, self.matrices, strict=True)
            ]
        )

    def batches(self, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in turn: the position of the first one, and the batch."""
        for start in range(0, len(self.entities), rows_per_batch):
            yield start, self.rows(start, min(start + rows_per_batch, len(self.entities)))


@dataclass(frozen=True, eq=False)
class Tabulation:
    """Block histograms of a release, ready to be tabulated."""

    geography: pd.DataFrame
    variables: tuple[str, ...]
    histograms: tuple[sparse.csr_array, ...]
    matrices: tuple[sparse.csr_array, ...]

    def level(self, level: SummaryLevel) -> LevelTable:
        """The tables of a summary level."""
        entities = entities_of(self.geography, level)
        sums = tuple(entities.sums(histogram) for histogram in self.histograms)
        return LevelTable(entities, self.variables, sums, self.matrices)

    def of_state(self, fips: str) -> Tabulation:
        """The blocks of one state, which stand together."""
        rows = np.flatnonzero(self.geography["block_geocode"].str.startswith(fips))
        part = slice(rows[0], rows[-1] + 1)
        return replace(
            self,
            geography=self.geography.iloc[part].reset_index(drop=True),
            histograms=tuple(histogram[part] for histogram in self.histograms),
        )


def tabulate(directory: Path, geography: pd.DataFrame, universes: Sequence[str]) -> Tabulation:
    """Count the microdata of a release directory.

    `geography` is the geography frame, sorted by block_geocode; every block of it is tabulated,
    those without records as zeros. Tables whose attributes the microdata do not have are left out.
    """
    block_geocode = geography["block_geocode"].to_numpy(dtype=object)
    counted = [
        count_microdata(directory / f"mdf_{universe}.parquet", block_geocode, universe)
        for universe in universes
    ]
    return Tabulation(
        geography,
        tuple(name for _, schema in counted for name in variables_of(schema)),
        tuple(histogram for histogram, _ in counted),
        tuple(variable_matrix(schema) for _, schema in counted),
    )


def table_files(directory: Path) -> list[Path]:
    """Paths of the tables below a release directory, in the order in which they are written."""
    folder = directory / TABLES
    return [
        folder / f"{level.stem}.{ending}"
        for level in SUMMARY_LEVELS.values()
        for ending in ("parquet", "csv")
    ]


def write_tables(tabulation: Tabulation, directory: Path, *, is_private: bool = True) -> list[Path]:
    """Write every summary level as Parquet and as text below `directory`; returns the files.

    Columns: SUMLEV, GEOID, GEOCODE, the parts of the geocode (STATE, COUNTY, ...), NAME, INTPTLAT
    and INTPTLON where the geography tells them, then the variables (int64).
    """
    files = table_files(directory)
    levels = SUMMARY_LEVELS.values()
    for level, parquet, text in zip(levels, files[::2], files[1::2], strict=True):
        table = tabulation.level(level)
        codes = entity_columns(table.entities)
        codes |= named_columns(table.entities, tabulation.geography)
        _write_level(table, codes, parquet, text, is_private)
    return files


def geoid(level: SummaryLevel, geocode: pa.Array) -> pa.Array:
    """Names of entities that are unique in all products, such as 0500000US44007.

    They are made of the summary level, "00" twice for no variant and the whole area, and the
    geocode.
    """
    return pc.binary_join_element_wise(f"{level.code}0000US", geocode, "")


def entity_columns(entities: Entities) -> dict[str, pa.Array]:
    """The columns that say which entity a row is."""
    return {
        "SUMLEV": pa.repeat(pa.scalar(entities.level.code), len(entities)),
        "GEOID": geoid(entities.level, entities.geocode),
        "GEOCODE": entities.geocode,
        **entities.parts,
    }


def _write_level(
    table: LevelTable, codes: dict[str, pa.Array], parquet: Path, text: Path, is_private: bool
) -> None:
    names, columns = list(codes), list(codes.values())
    metadata = None if is_private else {STAMP_KEY: NOT_PRIVATE}
    schema = pa.schema(
        [(name, pa.string()) for name in names] + [(name, pa.int64()) for name in table.variables],
        metadata=metadata,
    )
    # Codes need no quotes, and names may have commas.
    quoting = "needed" if NAME in codes else "none"
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style=quoting)
    with (
        replacing(text) as text_part,
        replacing(parquet) as parquet_part,
        text_part.open("wb") as sink,
        pq.ParquetWriter(parquet_part, schema, compression="zstd") as parquet_writer,
    ):
        stamp = "" if is_private else f"# {NOT_PRIVATE}\n"
        sink.write((stamp + ",".join(schema.names) + "\n").encode())
        with pyarrow.csv.CSVWriter(sink, schema, write_options=options) as text_writer:
            for start, rows in table.batches():
                parts = [column.slice(start, len(rows)) for column in columns]
                counts = [pa.array(values) for values in np.ascontiguousarray(rows.T)]
                batch = pa.RecordBatch.from_arrays([*parts, *counts], schema=schema)
                parquet_writer.write_batch(batch)
                text_writer.write_batch(batch)
