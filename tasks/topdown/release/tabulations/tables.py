"""The redistricting tables of a release, one file a summary level.

A row is a geographic entity, a column a variable under its public name, after the entity's GEOID,
its geocode and the parts of the geocode. Rows ascend by geocode. Parquet and comma-separated text
hold the same; a run that is not private is stamped as microdata are.

States may be tabulated one after the other: no entity of a summary level lies in two. Memory is
then that of a state's block histograms and a batch of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ....runs.stamps import RowsForm, rows_written
from ..declared_files import TABLES
from .levels import SUMMARY_LEVELS, Entities, SummaryLevel, entities_of
from .names import NAME, named_columns

ENDINGS = ("parquet", "csv")
ROWS_PER_BATCH = 1 << 14


@dataclass(frozen=True, eq=False)
class LevelTable:
    """The tables of one summary level, computed when asked for."""

    entities: Entities
    variables: tuple[str, ...]
    histograms: tuple[sparse.csr_array, ...]
    """One of shape `(n_entities, n_cells)` for each universe."""
    matrices: tuple[np.ndarray, ...]
    """What turns the histograms into variables, shape `(n_cells, n_variables)` each."""

    def batches(self, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in turn: the position of the first one, and variables, int64
        `(n, n_variables)`."""
        for start in range(0, len(self.entities), rows_per_batch):
            counts = zip(self.histograms, self.matrices, strict=True)
            here = slice(start, start + rows_per_batch)
            yield start, np.hstack([histogram[here] @ matrix for histogram, matrix in counts])


@dataclass(frozen=True, eq=False)
class Tabulation:
    """Block histograms of a release or of one state of it, ready to be tabulated."""

    geography: pd.DataFrame
    variables: tuple[str, ...]
    histograms: tuple[sparse.csr_array, ...]
    matrices: tuple[np.ndarray, ...]
    tells_block_group: bool | None = None
    """Whether geocodes of blocks have their block group; None where the geography itself says."""
    _levels: dict[str, LevelTable] = field(init=False, default_factory=dict)

    def level(self, level: SummaryLevel) -> LevelTable:
        """The tables of a summary level."""
        if level.code not in self._levels:
            self._levels[level.code] = self._level(level)
        return self._levels[level.code]

    def _level(self, level: SummaryLevel) -> LevelTable:
        entities = entities_of(self.geography, level, tells_block_group=self.tells_block_group)
        sums = tuple(entities.sums(histogram) for histogram in self.histograms)
        return LevelTable(entities, self.variables, sums, self.matrices)


def table_files(directory: Path, stems: Iterable[str], suffix: str = "") -> list[Path]:
    """Paths of tables below a release directory by their names without endings, or of what stands
    beside them under a further `suffix`, in the order in which they are written."""
    folder = directory / TABLES
    return [folder / f"{stem}{suffix}.{ending}" for stem in stems for ending in ENDINGS]


def write_tables(
    tabulations: Iterable[Tabulation],
    directory: Path,
    *,
    is_private: bool = True,
    levels: Sequence[SummaryLevel] = tuple(SUMMARY_LEVELS.values()),
) -> list[Path]:
    """Write summary levels as Parquet and as text below `directory`; returns the files.

    Columns: SUMLEV, GEOID, GEOCODE, the parts of the geocode (STATE, COUNTY, ...), NAME, INTPTLAT
    and INTPTLON where the geography tells them, then the variables (int64).

    The tabulations are those of successive states, each in memory while it is written. They give
    the files that one of all of them gives, if they all tell the same of block groups.
    """
    files = table_files(directory, [level.stem for level in levels])
    with ExitStack() as stack:
        writers = [_LevelWriter(stack, path.with_suffix(""), is_private) for path in files[::2]]
        for tabulation in tabulations:
            for level, writer in zip(levels, writers, strict=True):
                table = tabulation.level(level)
                writer.add(table, entity_columns(table.entities, tabulation.geography))
        for writer in writers:
            writer.finish()
    return files


def geoid(level: SummaryLevel, geocode: pa.Array) -> pa.Array:
    """Names of entities that are unique in all products, such as 0500000US44007.

    They are made of the summary level, "00" twice for no variant and the whole area, and the
    geocode.
    """
    return pc.binary_join_element_wise(f"{level.code}0000US", geocode, "")


def entity_columns(entities: Entities, geography: pd.DataFrame) -> dict[str, pa.Array]:
    """The columns of a table, and of its margins, that identify the entity of a row.

    SUMLEV, GEOID, GEOCODE, the parts of the geocode, and NAME, INTPTLAT and INTPTLON where the
    geography has them, in this order, each `(n_entities,)` strings.
    """
    return {
        "SUMLEV": pa.repeat(pa.scalar(entities.level.code), len(entities)),
        "GEOID": geoid(entities.level, entities.geocode),
        "GEOCODE": entities.geocode,
        **entities.parts,
        **named_columns(entities, geography),
    }


def text_form(columns: Collection[str]) -> RowsForm:
    """The form of a table's text: codes need no quotes, and names may have commas."""
    return RowsForm(is_quoted=NAME in columns)


class _LevelWriter:
    """The two files of a summary level, to which tables of successive states are added.

    Row groups have `ROWS_PER_BATCH` rows, wherever a state ends. The files get their names when
    the stack ends.
    """

    def __init__(self, stack: ExitStack, stem: Path, is_private: bool) -> None:
        self._stack, self._stem, self._is_private = stack, stem, is_private
        self._write: Callable[[Mapping[str, pa.Array]], int] | None = None
        self._held = pa.table({})

    def add(self, table: LevelTable, codes: Mapping[str, pa.Array]) -> None:
        """Write the rows of a table, but for the last ones, which wait for those of the next."""
        if self._write is None:
            kinds = dict.fromkeys(codes, pa.string()) | dict.fromkeys(table.variables, pa.int64())
            schema = pa.schema(kinds)
            written = rows_written(self._stem, schema, self._is_private, text_form(codes))
            self._write = self._stack.enter_context(written)
            self._held = pa.schema(kinds).empty_table()
        for start, rows in table.batches():
            columns = [column.slice(start, len(rows)) for column in codes.values()]
            columns += map(pa.array, np.ascontiguousarray(rows.T))
            further = pa.Table.from_arrays(columns, schema=self._held.schema)
            self._held = pa.concat_tables([self._held, further])
            self._write_held(ROWS_PER_BATCH)

    def finish(self) -> None:
        """Write what waits."""
        self._write_held(1)

    def _write_held(self, least: int) -> None:
        while self._write is not None and self._held.num_rows >= least:
            rows = self._held.slice(0, ROWS_PER_BATCH)
            self._held = self._held.slice(ROWS_PER_BATCH)
            self._write({name: rows[name].combine_chunks() for name in rows.column_names})
