"""Margins of published cells: an interval beside every count of the tables of a release.

`tables/<file>_margins.parquet` and `.csv` stand beside a table and have its rows in its order.
Beside the redistricting tables every variable has two columns, such as P0010001_LOWER and
P0010001_UPPER; beside a declared table, whose answers are rows, they are `lower` and `upper`.

An interval holds the truth with a probability of 90 % at least. It is the bounded kind of
`tasks.topdown.intervals.intervals`: from all noisy measurements, what is declared, and that counts
are not negative. It is no interval around the published count, which may lie outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from scipy import sparse

from ...census.areas import descriptions, entities
from ...census.declarations import TableDeclaration
from ...runs.stamps import WrittenFiles, write_rows
from ..intervals.areas import BlockAreas
from ..intervals.intervals import CellAnswers, PublishedCells
from ..intervals.run_posterior import RunPosterior
from ..settings import TopdownSettings
from .declared_files import LABELLED, TABLES, TableAnswers
from .tabulations.levels import SummaryLevel, entities_of, variable_matrix, variables_of
from .tabulations.tables import entity_columns, text_form

MARGIN_LEVEL = 0.9
"""Probability with which a margin's interval holds the truth, as usual for margins of error."""
SUFFIX = "_margins"
RUNS_WRITTEN = 4
"""So many runs of areas are written as one group of rows: reading more groups would take longer."""
LOWER, UPPER = "lower", "upper"


def write_table_margins(
    settings: TopdownSettings,
    found: Mapping[str, RunPosterior],
    geography: pd.DataFrame,
    directory: Path,
    levels: Sequence[SummaryLevel],
) -> list[Path]:
    """Write the margins of the redistricting tables of some summary levels below `directory`;
    returns the files.

    `found` has the posterior of each universe, in the order of the tables.
    """
    schemas = {name: settings.schema_of(name) for name in found}
    cells = {
        name: PublishedCells(posterior, sparse.csr_array(variable_matrix(schemas[name]).T))
        for name, posterior in found.items()
    }
    variables = [name for schema in schemas.values() for name in variables_of(schema)]
    # Blocks that cannot hold anybody are on no spine.
    blocks = pd.Index(geography["block_geocode"])
    row_of = {name: blocks.get_indexer(own.spine.block_geocode) for name, own in found.items()}
    files = list[Path]()
    for level in levels:
        of_level = entities_of(geography, level)
        columns = entity_columns(of_level, geography)
        kinds = {name: column.type for name, column in columns.items()}
        kinds |= dict.fromkeys(_end_columns(variables), pa.int64())
        answers = []
        for name, own in cells.items():
            areas = _areas(of_level.block_entity[row_of[name]], len(of_level))
            answers.append(own.of_areas(areas))
        batches = _joined(_table_batches(columns, variables, answers))
        stem = directory / TABLES / f"{level.stem}{SUFFIX}"
        written = write_rows(
            stem, pa.schema(kinds), batches, settings.is_private, text_form(columns)
        )
        files += [written.parquet, written.csv]
    return files


def _table_batches(
    columns: Mapping[str, pa.Array],
    variables: Sequence[str],
    answers: Sequence[Iterator[tuple[int, CellAnswers]]],
) -> Iterator[dict[str, pa.Array]]:
    """Runs of entities, from the answers of each universe to them."""
    for parts in zip(*answers, strict=True):
        (start, first), *_ = parts
        n = len(first.estimate)
        codes = {name: column.slice(start, n) for name, column in columns.items()}
        yield codes | _by_variable(variables, [part for _, part in parts])


def _joined(batches: Iterator[dict[str, pa.Array]]) -> Iterator[dict[str, pa.Array]]:
    """Batches of columns, `RUNS_WRITTEN` at a time as one."""
    while some := list(islice(batches, RUNS_WRITTEN)):
        if len(some) > 1:
            some = [{name: pa.concat_arrays([each[name] for each in some]) for name in some[0]}]
        yield some[0]


def _by_variable(variables: Sequence[str], parts: Sequence[CellAnswers]) -> dict[str, pa.Array]:
    """The two columns of every variable, from the answers of each universe."""
    columns = []
    for part in parts:
        interval = part.intervals(MARGIN_LEVEL)
        ends = interval.bounded_lower, interval.bounded_upper
        # A column of a table is a row here: copied once, read in a row.
        lower, upper, is_null = (np.ascontiguousarray(kind.T) for kind in (*ends, ~part.is_known))
        for place, nulls in enumerate(is_null):
            mask = nulls if nulls.any() else None  # Arrow takes long over a mask of nothing.
            columns += [pa.array(end[place], mask=mask) for end in (lower, upper)]
    return dict(zip(_end_columns(variables), columns, strict=True))


def _end_columns(variables: Sequence[str]) -> list[str]:
    return [f"{name}_{end.upper()}" for name in variables for end in (LOWER, UPPER)]


def write_declared_margins(
    settings: TopdownSettings,
    table: TableDeclaration,
    found: RunPosterior,
    areas: pd.DataFrame,
    directory: Path,
) -> WrittenFiles:
    """Write the margins of one declared table, from the posterior of its universe."""
    asked, declared = TableAnswers.of(settings, table), settings.compiled_census.geography
    kinds = asked.kinds | {LOWER: pa.int64(), UPPER: pa.int64()}
    cells = PublishedCells(found, asked.counted)

    def batches() -> Iterator[dict[str, pa.Array]]:
        for level in table.levels:
            number, code = entities(areas, declared.geolevels, level)
            described = descriptions(areas, declared, level)
            of_level = _areas(np.asarray(number)[found.spine.block_row], len(code))
            yield from _joined(
                asked.columns(level, code, np.arange(start, start + len(part.estimate)), described)
                | _ends(part)
                for start, part in cells.of_areas(of_level)
            )

    stem = directory / TABLES / f"{table.name}{SUFFIX}"
    return write_rows(stem, pa.schema(kinds), batches(), settings.is_private, LABELLED)


def _ends(part: CellAnswers) -> dict[str, pa.Array]:
    """The ends of the intervals of some areas' answers, one after the other."""
    interval, is_null = part.intervals(MARGIN_LEVEL), ~part.is_known.ravel()
    ends = {LOWER: interval.bounded_lower, UPPER: interval.bounded_upper}
    return {name: pa.array(end.ravel(), mask=is_null) for name, end in ends.items()}


def _areas(of_block: np.ndarray, n_entities: int) -> BlockAreas:
    """Entities as lists of blocks of the spine, from the entity of each block."""
    return BlockAreas.of_pairs(n_entities, np.arange(len(of_block)), of_block)
