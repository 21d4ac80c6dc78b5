"""Microdata and tables of a declared census: labels of levels, codes of areas.

`mdf_<universe>.parquet` and `.csv` have a column for each geolevel that is a column of the areas,
and one for each attribute with the label of the level. A universe whose records are rows gets a row
for each record; one whose rows have a count gets a row for each area and cell with records, and the
column that counts them. Rows are ordered by area, then by cell.

`tables/<name>.parquet` and `.csv` have a row for each entity of each summary level of the table and
each answer to its query, zeros included: `level`, `code` (the path of a geounit, the value of any
other column), `name`, `latitude` and `longitude` where the geography declares them for a level of
the table, a label for each attribute or coarsening that the query names, and `count`. A table
of variables has their numbers from 1, `variable`, and what they count, `label`, in place of these.

Both are text with pipes between the fields and a header, and follow from the estimates of the last
geolevel alone. A run that is not private is stamped as its other files are: the Parquet metadata
has the stamp, and the text files begin with a line `# NOT PRIVATE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ...census.areas import code_columns, described_columns, descriptions, entities
from ...census.compiled_schemas import table_variables
from ...census.declarations import TableDeclaration
from ...census.queries import incidence, label_parts, marginal_query
from ...runs.names import below
from ...runs.stamps import RowsForm, WrittenFiles, write_rows
from ...tables.columns import coded_texts
from ...tables.mapped import cut_at
from ..settings import TopdownSettings

TABLES = "tables"
COUNT, VARIABLE, LABEL = "count", "variable", "label"
ROWS_PER_BATCH = 1 << 18

LABELLED = RowsForm("|", keeps_types=False)
"""The form of files that have labels of levels."""


def write_declared_microdata(
    settings: TopdownSettings,
    universe: str,
    counts: sparse.csr_array,
    areas: pd.DataFrame,
    directory: Path,
) -> WrittenFiles:
    """Write the microdata of one universe, from counts `(n_areas, n_cells)`; see the module's
    docstring.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    # The column that counts records; None for one row a record.
    count = census.universes[universe].declared.count
    columns = code_columns(census.geolevels, areas.columns)
    entries = sparse.coo_array(counts)
    levels = np.unravel_index(entries.col, schema.shape)
    times = np.ones(entries.nnz, dtype=np.int64) if count else entries.data
    codes = {name: pd.factorize(areas[name]) for name in columns}

    def batches() -> Iterator[dict[str, pa.Array]]:
        for start, stop in cut_at(times, ROWS_PER_BATCH):
            rows = np.repeat(np.arange(start, stop), times[start:stop])
            batch = {
                name: coded_texts(code[entries.row[rows]], values)
                for name, (code, values) in codes.items()
            }
            for name, level in zip(schema.attributes, levels, strict=True):
                batch[name] = coded_texts(level[rows], schema.labels(name))
            if count:
                batch[count] = pa.array(entries.data[rows], pa.int64())
            yield batch

    names = [*columns, *schema.attributes]
    kinds = {name: pa.dictionary(pa.int32(), pa.string()) for name in names}
    if count:
        kinds[count] = pa.int64()
    return write_rows(
        below(directory, f"mdf_{universe}"),
        pa.schema(kinds),
        batches(),
        settings.is_private,
        LABELLED,
    )


def write_declared_table(
    settings: TopdownSettings,
    table: TableDeclaration,
    counts: sparse.csr_array,
    areas: pd.DataFrame,
    directory: Path,
) -> WrittenFiles:
    """Write one declared table, from counts `(n_areas, n_cells)` of its universe; see the module's
    docstring. Areas with no code of a further column are in none of its entities.
    """
    cells, counts = _of_occupied(counts)
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
    return write_rows(stem, pa.schema(kinds), batches(), settings.is_private, LABELLED)


def _of_occupied(counts: sparse.csr_array) -> tuple[np.ndarray, sparse.csr_array]:
    """The cells (n,) that have counts anywhere, and the counts of these alone, (areas, n)."""
    place = np.zeros(counts.shape[1], dtype=np.int64)
    place[counts.indices] = 1
    cells = np.flatnonzero(place)
    place[cells] = np.arange(cells.size)
    shape = counts.shape[0], cells.size
    return cells, sparse.csr_array((counts.data, place[counts.indices], counts.indptr), shape)


@dataclass(frozen=True, eq=False)
class TableAnswers:
    """The answers of a declared table, and their labels.

    counted : (a, n) 0/1 matrix, the cells of each answer, of all cells or of those asked for.
    labels : by name of an attribute or coarsening, the number of each answer's label (a,), and the
        labels.
    described : what the table tells of its entities beside their codes, such as names.
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
        """Those that the table's query and its conditions leave, or its variables.

        `cells` (n,) are those whose counts the answers are to be made of: of many the others have
        none.
        """
        schema = settings.schema_of(table.universe)
        described = described_columns(settings.compiled_census.geography, table.levels)
        if table.rows:
            labels, masks = zip(*table_variables(table, schema), strict=True)
            number = np.arange(len(masks))
            return cls(
                _ones_at([np.flatnonzero(mask[cells]) for mask in masks], masks[0][cells].size),
                {VARIABLE: (number, [str(1 + i) for i in number]), LABEL: (number, labels)},
                described,
            )
        query = marginal_query(schema, table.query)
        inside = schema.cells_where(table.where)
        rows = query.rows_of(inside)
        axes = np.unravel_index(rows, query.shape)
        is_counted, row = inside[cells], query.row_of_cell[cells]
        column = np.flatnonzero(is_counted)
        counted = np.searchsorted(rows, row[column]), column
        return cls(
            sparse.csr_array(
                (np.ones(column.size, dtype=np.int64), counted), (rows.size, is_counted.size)
            ),
            {
                name: (axes[schema.attributes.index(attribute)], labels)
                for name, attribute, labels in label_parts(schema, table.query)
            },
            described,
        )

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """Types of the columns that say what is counted."""
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

        `described` has the texts of all entities of the level, by what they tell.
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


def _ones_at(columns: Sequence[np.ndarray], n_columns: int) -> sparse.csr_array:
    """The 0/1 matrix whose rows have ones in these columns, ascending."""
    starts = np.cumsum([0, *map(len, columns)])
    ones = np.ones(starts[-1], dtype=np.int64)
    return sparse.csr_array((ones, np.concatenate(columns), starts), (len(columns), n_columns))
