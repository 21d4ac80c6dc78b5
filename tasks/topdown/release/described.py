"""The microdata of a universe, in the form that its census declares.

The records of one may be described by another, as households do occupied units. The later universe
is held to the earlier one: in every area, each answer to one query counts as many records of both.
Records of one answer are matched one by one, both in the order of their cells, so that a row tells
what both universes know of it, and counts of either are those of their estimates. Which record of
an answer is matched with which tells nothing: estimates are counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ...census.census import Held, Universe
from ...census.declarations import DescribedByDeclaration
from ...census.invariants import read_geography, read_invariants
from ...census.microdata import layout_of
from ...census.queries import marginal_query, rows_that_count
from ...runs.directory import RunDirectory
from ...runs.stamps import WrittenFiles
from ..measurement.public_answers import area_counts
from ..paths import geography_file, invariants_file
from ..settings import TopdownSettings
from .declared_files import write_declared_microdata
from .microdata import (
    BLOCK_GEOCODE_DIGITS,
    BlockCounts,
    block_estimate_parts,
    coded_cells,
    write_coded,
    write_microdata,
)


def write_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> WrittenFiles:
    """Write the microdata of a universe beside what else is to be checked before its release: in
    the layout that the census declares, with what another universe tells of its records, or with
    labels of areas and levels.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    folder, declared = run.unchecked_release, census.universes[universe].declared
    if declared.microdata is None:
        areas = read_geography(geography_file(run))
        counts = area_counts(run, settings, universe, len(areas))
        return write_declared_microdata(settings, universe, counts, areas, folder)
    described = description(settings, census.universes[universe])
    if described is not None:
        return write_described_universe(run, settings, census.universes[universe], *described)
    has_further = declared.microdata.further is not None
    return write_microdata(
        block_estimate_parts(run, universe, schema.n_cells),
        schema,
        folder,
        read_invariants(invariants_file(run)) if has_further else None,
        census=census,
        is_private=settings.is_private,
    )


@dataclass(frozen=True, eq=False)
class Matched:
    """Records of two universes: area, cells in both (the later one's -1 for records that are
    matched with none), and how many they are, `(n,)` each, by area and cells.
    """

    area: np.ndarray
    cell: np.ndarray
    described: np.ndarray
    count: np.ndarray


def description(
    settings: TopdownSettings, universe: Universe
) -> tuple[DescribedByDeclaration, Held] | None:
    """What describes the records of a universe, and what holds the later one to them."""
    declared = (
        None if universe.declared.microdata is None else universe.declared.microdata.described_by
    )
    if declared is None:
        return None
    other = settings.compiled_census.universes[declared.universe]
    return declared, next(held for held in other.held_beside if held.universe == universe.name)


def matched(
    earlier: sparse.csr_array, later: sparse.csr_array, row: np.ndarray, row_of_later: np.ndarray
) -> Matched:
    """Records `(n_areas, n_cells)` of two universes, matched within areas and answers.

    row : (n_cells,) of the earlier universe's cells, the answer that counts each, -1 for none.
    row_of_later : (n_cells,) of the later universe's cells. Raises ValueError where an area has not
    as many records of both in an answer.
    """
    first, second = _ordered(earlier, row), _ordered(later, row_of_later)
    is_matched = first["row"].to_numpy() >= 0
    alone, first = first[~is_matched], first[is_matched]
    keys = ["area", "row"]
    sums = [frame.groupby(keys)["count"].sum() for frame in (first, second)]
    if not sums[0].equals(sums[1]):
        raise ValueError("the records of two universes that are matched are not as many")
    ends = [np.cumsum(frame["count"].to_numpy(dtype=np.int64)) for frame in (first, second)]
    end = np.union1d(*ends)
    at, other = (np.searchsorted(one, end, side="left") for one in ends)
    area = np.concatenate([first["area"].to_numpy()[at], alone["area"].to_numpy()])
    cell = np.concatenate([first["cell"].to_numpy()[at], alone["cell"].to_numpy()])
    described = np.concatenate([second["cell"].to_numpy()[other], np.full(len(alone), -1)])
    count = np.concatenate([np.diff(end, prepend=0), alone["count"].to_numpy()])
    order = np.lexsort((described, cell, area))
    return Matched(area[order], cell[order], described[order], count[order])


def _ordered(counts: sparse.csr_array, row: np.ndarray) -> pd.DataFrame:
    """Counts that are not zero, by area, answer and cell."""
    entries = sparse.coo_array(counts)
    frame = pd.DataFrame(
        {"area": entries.row, "row": row[entries.col], "cell": entries.col, "count": entries.data}
    ).astype(np.int64)
    return frame[frame["count"] > 0].sort_values(["area", "row", "cell"], ignore_index=True)


def write_described_universe(
    run: RunDirectory,
    settings: TopdownSettings,
    universe: Universe,
    declared: DescribedByDeclaration,
    held: Held,
) -> WrittenFiles:
    """Write the microdata of a universe with what another one tells of its records, as
    `write_microdata` does.
    """
    areas = read_geography(geography_file(run))
    schema, later = settings.schema_of(universe.name), settings.schema_of(declared.universe)
    records = matched(
        area_counts(run, settings, universe.name, len(areas)),
        area_counts(run, settings, declared.universe, len(areas)),
        rows_that_count(later, schema, held.query, held.where, held.of),
        marginal_query(later, held.query).row_of_cell,
    )
    pairs, number = np.unique(
        np.stack([records.cell, records.described]), axis=1, return_inverse=True
    )
    cell, described = pairs
    layout = layout_of(universe.name, settings.compiled_census)
    columns = {}
    for column in layout.columns:
        if column.attribute is not None:
            codes, of_cell = coded_cells(column, schema)
            columns[column.name] = codes, of_cell[cell]
    for column in declared.columns:
        codes, of_cell = coded_cells(column, later)
        of_pair = np.where(described >= 0, of_cell[described], len(codes))
        columns[column.name] = [*codes, declared.otherwise[column.name]], of_pair
    paths = areas["block_geocode"].str.replace(".", "", regex=False)
    geocode = paths.str[-BLOCK_GEOCODE_DIGITS:].to_numpy(dtype=object)
    where = records.area, number.reshape(-1)
    counts = sparse.csr_array((records.count, where), shape=(len(areas), cell.size))
    order = np.argsort(geocode)
    ordered = BlockCounts(pa.array(geocode[order], pa.string()), counts[order])
    stem = run.unchecked_release / f"mdf_{universe.name}"
    return write_coded(ordered, columns, layout, stem, is_private=settings.is_private)
