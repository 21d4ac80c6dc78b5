"""The redistricting tables of a release, one file a summary level.

A row is a geographic entity, a column a variable under its public name, after the entity's GEOID,
its geocode and the parts of the geocode. Rows ascend by geocode. Parquet and comma-separated text
have the same content; a run that is not private is stamped as microdata are.

States may be tabulated one after the other: no entity of a summary level is in two. Memory is then
a state's block histograms and a batch of rows.

Tabulations of the states of a run, one after the other, from the estimates of their blocks.

A state is read when it is requested, so that memory is bounded by the largest state and the codes
of all blocks.

Tables of a declared census: labels of levels, codes of areas.

`tables/<name>.parquet` and `.csv` have a row for each entity of each summary level of the table and
each answer to its query, zeros included: `level`, `code` (the path of a geounit, the value of any
other column), `name`, `latitude` and `longitude` where the geography declares them for a level of
the table, a label for each attribute or coarsening that the query names, and `count`. A table
of variables has their numbers from 1, `variable`, and their descriptions, `label`, instead.

Texts have pipes between the fields and a header, and follow from the estimates of the last geolevel
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ....census.areas import described_columns, descriptions, entities
from ....census.cef_2020 import CENSUS
from ....census.compiled_schemas import table_variables
from ....census.declarations import SummaryLevelDeclaration, TableDeclaration
from ....census.microdata import layout_of
from ....census.queries import Schema, incidence, label_parts, marginal_query
from ....runs.directory import RunDirectory
from ....runs.names import below
from ....runs.stamps import GroupedRows, RowsForm, rows_written, write_rows
from ....tables.columns import coded_texts
from ...paths import geography_file
from ...settings import TopdownSettings
from ...spine.files import blocks_of_state, read_codes, released_counts, spine_of
from .levels import (
    NAME,
    SUMMARY_LEVELS,
    Entities,
    entities_of,
    named_columns,
    needs_block_groups,
    variable_matrix,
    variables_of,
)

TABLES = "tables"
COUNT, VARIABLE, LABEL = "count", "variable", "label"

LABELLED = RowsForm("|", keeps_types=False)
"""The form of files that have labels of levels."""


def write_declared_table(
    settings: TopdownSettings,
    table: TableDeclaration,
    counts: sparse.csr_array,
    areas: pd.DataFrame,
    directory: Path,
) -> Path:
    """Write one declared table, from counts `(n_areas, n_cells)` of its universe; see the module's
    docstring. Areas without a code in a further column belong to none of its entities.
    """
    cells, counts = of_occupied(counts)
    asked = TableAnswers.of(settings, table, cells)
    declared = settings.compiled_census.geography
    answers = counts @ asked.counted.T
    kinds = asked.kinds | {COUNT: pa.int64()}

    def batches() -> Iterator[dict[str, pa.Array]]:
        for level in table.levels:
            number, code = entities(areas, declared.geolevels, level)
            described = descriptions(areas, declared, level)
            sums = (incidence(number, len(code)) @ answers).toarray()
            columns = asked.columns(level, code, np.arange(len(code)), described)
            yield columns | {COUNT: pa.array(sums.ravel(), pa.int64())}

    stem = below(directory / TABLES, table.name)
    return write_rows(stem, pa.schema(kinds), batches(), LABELLED)


def of_occupied(counts: sparse.csr_array) -> tuple[np.ndarray, sparse.csr_array]:
    """The cells (n,) that have counts anywhere, and the counts of these alone, (areas, n)."""
    cells, place = np.unique(counts.indices, return_inverse=True)
    shape = counts.shape[0], cells.size
    return cells, sparse.csr_array((counts.data, place.reshape(-1), counts.indptr), shape)


@dataclass(frozen=True, eq=False)
class TableAnswers:
    """The answers of a declared table, and their labels.

    counted : (a, n) 0/1 matrix, the cells of each answer, of all cells or of the requested ones.
    labels : by name of an attribute or coarsening, the number of each answer's label (a,), and the
        labels.
    described : further columns of the table on its entities, such as names.
    """

    counted: sparse.csr_array
    labels: Mapping[str, tuple[np.ndarray, Sequence[str]]]
    described: tuple[str, ...]

    @classmethod
    def of(
        cls,
        settings: TopdownSettings,
        table: TableDeclaration,
        cells: np.ndarray | slice = slice(None),
    ) -> TableAnswers:
        """The answers left by the table's query and its conditions, or its variables.

        `cells` (n,) are the cells with counts, from which the answers are made: many others are
        empty.
        """
        schema = settings.schema_of(table.universe)
        described = described_columns(settings.compiled_census.geography, table.levels)
        if table.rows:
            labels, masks = zip(*table_variables(table, schema), strict=True)
            number = np.arange(len(masks))
            return cls(
                sparse.csr_array(np.array([mask[cells] for mask in masks])).astype(np.int64),
                {VARIABLE: (number, [str(1 + i) for i in number]), LABEL: (number, labels)},
                described,
            )
        query = marginal_query(schema, table.query)
        inside = schema.cells_where(table.where)
        rows = query.rows_of(inside)
        axes = np.unravel_index(rows, query.shape)
        row_of_cell = np.where(inside, query.row_of_cell, -1)[cells]
        return cls(
            incidence(row_of_cell, query.n_rows)[rows],
            {
                name: (axes[schema.attributes.index(attribute)], labels)
                for name, attribute, labels in label_parts(schema, table.query)
            },
            described,
        )

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """Types of the columns that describe counts."""
        names = ("level", "code", *self.described, *self.labels)
        return {name: pa.dictionary(pa.int32(), pa.string()) for name in names}

    def columns(
        self,
        level: str,
        code: Sequence[str],
        numbers: np.ndarray,
        described: Mapping[str, Sequence[str]],
    ) -> dict[str, pa.Array]:
        """These columns for the entities `numbers` (n,) of a summary level, answer after answer.

        `described` has the texts of all entities of the level, by column.
        """
        n, m = len(numbers), self.counted.shape[0]
        found = {
            "level": coded_texts(np.zeros(n * m), [level]),
            "code": coded_texts(np.repeat(numbers, m), code),
        }
        for name in self.described:
            texts = described.get(name)
            numbered = np.zeros(n * m) if texts is None else np.repeat(numbers, m)
            found[name] = coded_texts(numbered, [""] if texts is None else texts)
        for name, (label, labels) in self.labels.items():
            found[name] = coded_texts(np.tile(label, n), labels)
        return found


ENDINGS = ("parquet", "csv")
ROWS_PER_BATCH = 1 << 14


@dataclass(frozen=True, eq=False)
class LevelTable:
    """The tables of one summary level: histograms `(n_entities, n_cells)` of its entities by the
    schema of each universe."""

    entities: Entities
    histograms: Mapping[Schema, sparse.csr_array]

    @property
    def variables(self) -> list[str]:
        """Names of its variables."""
        return [name for schema in self.histograms for name in variables_of(schema)]

    def batches(self, of_entities: Mapping[str, pa.Array]) -> Iterator[dict[str, pa.Array]]:
        """All rows, `ROWS_PER_BATCH` at a time: columns of the entities, then the variables."""
        for start in range(0, len(self.entities), ROWS_PER_BATCH):
            here = slice(start, start + ROWS_PER_BATCH)
            counts = [
                own[here] @ variable_matrix(schema) for schema, own in self.histograms.items()
            ]
            values = map(pa.array, np.ascontiguousarray(np.hstack(counts).T))
            columns = {name: column[here] for name, column in of_entities.items()}
            yield columns | dict(zip(self.variables, values, strict=True))


def tabulate(
    geography: pd.DataFrame,
    counted: Mapping[Schema, sparse.csr_array],
    tells_block_group: bool | None = None,
) -> list[LevelTable]:
    """The tables of every summary level.

    Args:
        geography: the geography frame of some states.
        counted: histograms `(n_blocks, n_cells)` of its blocks by the schema of each universe.
        tells_block_group: see `entities_of`.
    """
    levels = (
        entities_of(geography, level, tells_block_group=tells_block_group)
        for level in SUMMARY_LEVELS.values()
    )
    return [
        LevelTable(entities, {schema: entities.sums(own) for schema, own in counted.items()})
        for entities in levels
    ]


def table_files(directory: Path, stems: Iterable[str], suffix: str = "") -> list[Path]:
    """Paths of tables below a release directory by their names without endings, or of their
    companions with a further `suffix`, in the order in which they are written."""
    folder = directory / TABLES
    return [folder / f"{stem}{suffix}.{ending}" for stem in stems for ending in ENDINGS]


def write_tables(tabulations: Iterable[Sequence[LevelTable]], directory: Path) -> list[Path]:
    """Write summary levels as Parquet and as text below `directory`; returns the files.

    Columns: SUMLEV, GEOID, GEOCODE, the parts of the geocode (STATE, COUNTY, ...), NAME, INTPTLAT
    and INTPTLON where the geography has them, then the variables (int64).

    The tabulations are of successive states, each in memory while it is written. They give the same
    rows as one tabulation of all states, if they all agree on block groups.
    """
    files = table_files(directory, [level.stem for level in SUMMARY_LEVELS.values()])
    writers: list[GroupedRows] = []
    with ExitStack() as stack:
        for tables in tabulations:
            for number, (table, path) in enumerate(zip(tables, files[::2], strict=True)):
                codes = entity_columns(table.entities)
                if number == len(writers):
                    kinds = dict.fromkeys(codes, pa.string())
                    schema = pa.schema(kinds | dict.fromkeys(table.variables, pa.int64()))
                    form = text_form(codes)
                    written = rows_written(path.with_suffix(""), schema, form)
                    write = stack.enter_context(written)
                    writers.append(GroupedRows(partial(_write_table, write)))
                for columns in table.batches(codes):
                    writers[number].add(pa.table(columns))
        for writer in writers:
            writer.write()
    return files


def _write_table(write: Callable[[Mapping[str, pa.Array]], None], table: pa.Table) -> None:
    (columns,) = table.to_batches()
    write(dict(zip(columns.schema.names, columns.columns, strict=True)))


def geoid(level: SummaryLevelDeclaration, geocode: pa.Array) -> pa.Array:
    """Names of entities that are unique in all products, such as 0500000US44007.

    They are made of the summary level, "00" twice for no variant and the whole area, and the
    geocode.
    """
    return pc.binary_join_element_wise(f"{level.code}0000US", geocode, "")


def entity_columns(entities: Entities) -> dict[str, pa.Array]:
    """The columns of a table, and of its margins, that identify the entity of a row.

    SUMLEV, GEOID, GEOCODE, the parts of the geocode, and NAME, INTPTLAT and INTPTLON where the
    geography has them, in this order, each `(n_entities,)` strings.
    """
    return {
        "SUMLEV": pa.repeat(pa.scalar(entities.level.code), len(entities)),
        "GEOID": geoid(entities.level, entities.geocode),
        "GEOCODE": entities.geocode,
        **entities.parts,
        **named_columns(entities),
    }


def text_form(columns: Collection[str]) -> RowsForm:
    """The form of a table's text: codes need no quotes, and names may have commas."""
    return RowsForm(is_quoted=NAME in columns)


_STATE = (0, CENSUS.declared.code_parts["STATE"].digits[1])  # type: ignore[index]
"""Digits of a block's geocode for its state."""


def states_of(run: RunDirectory) -> list[str]:
    """FIPS codes of the states of the geography that an ingest wrote, ascending."""
    return sorted(pc.unique(pc.utf8_slice_codeunits(_block_geocodes(run), *_STATE)).to_pylist())


def _block_geocodes(run: RunDirectory) -> pa.ChunkedArray:
    return pq.read_table(geography_file(run), columns=["block_geocode"])["block_geocode"]


def state_tabulations(
    run: RunDirectory, settings: TopdownSettings, universes: Sequence[str], states: Sequence[str]
) -> Iterator[list[LevelTable]]:
    """The tables of each of some states, by their FIPS codes, in turn; every block of the geography
    is tabulated."""
    tells_block_group = needs_block_groups(_block_geocodes(run))
    for fips in states:
        geography = read_codes(geography_file(run), fips, f"{fips}:")  # A colon follows digits.
        blocks = pd.Index(geography["block_geocode"])
        counted = {}
        for universe in universes:
            full, spine = settings.schema_of(universe), spine_of(run, universe)
            in_layout = {column.attribute for column in layout_of(universe).columns}
            own = CENSUS.universes[universe].declared.attributes
            present = [name for name in own if name in in_layout and name in full.attributes]
            schema = CENSUS.schema(universe, tuple(present))
            own_cell = schema.cells({name: full.levels(name) for name in schema.attributes})
            on_spine = blocks_of_state(spine, fips)
            row = blocks.get_indexer(spine.block_geocode[on_spine])
            if (row < 0).any():
                raise ValueError(f"estimates of {universe} have a block outside the geography")
            found = sparse.coo_array(
                released_counts(run, universe, spine.geolevels[-1], full.n_cells, on_spine)
            )
            where, shape = (row[found.row], own_cell[found.col]), (len(blocks), schema.n_cells)
            counted[schema] = sparse.csr_array(sparse.coo_array((found.data, where), shape))
        yield tabulate(geography, counted, tells_block_group)
