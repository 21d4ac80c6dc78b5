"""Summary levels of the redistricting product, and the entity of each that a block belongs to.

Names, codes and points of geographic entities, from further columns of the geography.

A column PART_FIELD of the geography (COUNTY_NAME, PLACE_LSADC, TRACT_INTPTLAT, ...) has the field
of the geographic header for entities of that kind: a county's name is in the rows of all its
blocks. For blocks the columns are named as the fields. A column such as COUNTYNS or PLACECC applies
to every entity whose geocode has that part.

The variables of the redistricting tables: the cells of a schema that each one counts.

The tables are the ones that the census declares with `rows`. A variable is named as in the public
tables: P0010001 is the first of P1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from .....geography.categories import Category
from ....census.areas import entities
from ....census.cef_2020 import CENSUS
from ....census.census import Census
from ....census.compiled_schemas import names_of_table, table_variables
from ....census.declarations import SummaryLevelDeclaration, TableDeclaration
from ....census.queries import Schema, has_attributes, incidence

SUMMARY_LEVELS = {level.code: level for level in CENSUS.declared.summary_levels}
"""By code, in the order in which a release numbers its records."""

_PARTS = CENSUS.declared.code_parts
COLUMNS: Mapping[str, str] = {
    name: part.column for name, part in _PARTS.items() if part.column is not None
}
"""Column of the geography frame for each part of a geocode outside the block's own."""

OUTSIDE: Mapping[str, str] = {
    name: part.outside for name, part in _PARTS.items() if part.outside is not None
}
"""Code of the blocks that belong to no entity, by part of a geocode."""

_DIGITS: Mapping[str, tuple[int, int]] = {
    name: part.digits for name, part in _PARTS.items() if part.digits is not None
}
"""Digits of the block geocode in each part, end exclusive."""


@dataclass(frozen=True, eq=False)
class Entities:
    """The entities of one summary level, by geocode."""

    level: SummaryLevelDeclaration
    geography: pd.DataFrame
    geocode: pa.StringArray
    """(n,) ascending; geocodes of one state are contiguous."""
    parts: Mapping[str, pa.StringArray]
    """Each part of the geocode, (n,) each."""
    block_entity: np.ndarray
    """(n_blocks,) int64: position of each block's entity; -1 if it belongs to none."""
    first_block: pa.Array
    """(n,) position of each entity's first block."""

    def __len__(self) -> int:
        return len(self.geocode)

    def sums(self, histograms: sparse.csr_array) -> sparse.csr_array:
        """Sums over each entity's blocks, from block histograms of shape `(n_blocks, n_cells)`."""
        return incidence(self.block_entity, len(self)) @ histograms


def entities_of(
    geography: pd.DataFrame,
    level: SummaryLevelDeclaration,
    *,
    tells_block_group: bool | None = None,
) -> Entities:
    """The entities of a summary level over the blocks of a geography frame.

    A block's geocode is composed of the state, county, tract and the four digits of the block,
    which begin with its block group; where they do not for some block, the block group precedes
    them. `tells_block_group` says which it is where the blocks are some of more; see
    `needs_block_groups`.
    """
    names = list(level.parts)
    if names[-1] == _BLOCK:
        if tells_block_group is None:
            tells_block_group = needs_block_groups(texts_of(geography["block_geocode"]))
        if tells_block_group:
            names.insert(-1, "BLKGRP")
    parts = _parts(geography, names)
    geocode = pc.binary_join_element_wise(*(parts[name] for name in names), "")
    if names[-1] in OUTSIDE:
        is_outside = pc.equal(parts[names[-1]], OUTSIDE[names[-1]])
        geocode = pc.if_else(is_outside, pa.scalar(None, pa.string()), geocode)
    known = pc.unique(geocode).drop_null()
    known = known.take(pc.sort_indices(known))
    entity = pc.fill_null(pc.index_in(geocode, known), -1).to_numpy().astype(np.int64)
    numbers, first_blocks = np.unique(entity, return_index=True)
    first = pa.array(first_blocks[numbers >= 0])
    of_entities = {name: parts[name].take(first) for name in names}
    return Entities(level, geography, known, of_entities, entity, first)


def tabulated_entities(
    geography: pd.DataFrame, census: Census
) -> dict[str, tuple[np.ndarray, int]]:
    """The entities in the tables of a census, by the name of their level.

    Levels are the summary levels of a census, or else its geolevels and the columns of areas that
    its tables are by.

    Returns:
        For each level (n_rows,) the entity of every row of the geography, -1 for none, and how many
        entities there are.
    """
    if census.declared.summary_levels:
        found = (entities_of(geography, level) for level in SUMMARY_LEVELS.values())
        return {own.level.name: (own.block_entity.astype(np.int32), len(own)) for own in found}
    columns = [level for table in census.declared.tables for level in table.levels]
    named = [name for name in (*census.geolevels, *columns) if name in geography.columns]
    of_levels = {
        name: entities(geography, census.geolevels, name)
        for name in dict.fromkeys([census.geolevels[0], *named])
    }
    return {name: (number, len(codes)) for name, (number, codes) in of_levels.items()}


def tabulated_categories(geography: pd.DataFrame, census: Census) -> tuple[Category, ...]:
    """`tabulated_entities` as categories without labels; leaves out levels of single rows and
    levels with one entity."""
    found = []
    for name, (entity, n) in tabulated_entities(geography, census).items():
        if 1 < n < len(entity):
            has_outside = bool((entity < 0).any())
            labels = np.full(n + has_outside, "", dtype=object)
            found.append(Category(name, entity + has_outside, labels, 0 if has_outside else -1))
    return tuple(found)


def needs_block_groups(block_geocode: pa.StringArray | pa.ChunkedArray) -> bool:
    """Whether the four digits of some block do not begin with its block group."""
    own, group = (
        pc.utf8_slice_codeunits(block_geocode, first, first + 1)
        for first in (_DIGITS["BLOCK"][0], _DIGITS["BLKGRP"][0])
    )
    return not pc.all(pc.equal(own, group), min_count=0).as_py()


def _parts(geography: pd.DataFrame, names: list[str]) -> dict[str, pa.StringArray]:
    block_geocode = texts_of(geography["block_geocode"])
    return {
        name: pc.utf8_slice_codeunits(block_geocode, *_DIGITS[name])
        if name in _DIGITS
        else texts_of(geography[COLUMNS[name]])
        for name in names
    }


def texts_of(column: pd.Series) -> pa.StringArray:
    """A column of texts; without objects where it is an Arrow array already."""
    held = pa.array(column)
    if isinstance(held, pa.ChunkedArray):
        held = held.combine_chunks()
    return held.cast(pa.string())


NAME = "NAME"
POINT = ("INTPTLAT", "INTPTLON")
OWN_FIELDS = (NAME, "BASENAME", "LSADC", "FUNCSTAT", *POINT)
"""Fields of the header for which each kind of entity has its own columns."""

_CODES_OF_PARTS = ("CC", "NS")
"""Endings of a part's class code and its ANSI code."""

_BLOCK = "BLOCK"


def own_columns(entities: Entities) -> dict[str, pa.Array]:
    """The fields of entities that the geography has columns for, by name; empty where blank."""
    geography = entities.geography
    kind = entities.level.parts[-1]
    columns = {name: name if kind == _BLOCK else f"{kind}_{name}" for name in OWN_FIELDS}
    columns |= {
        f"{part}{ending}": f"{part}{ending}"
        for part in entities.level.parts
        for ending in _CODES_OF_PARTS
    }
    return {
        name: further_column(geography, column).take(entities.first_block)
        for name, column in columns.items()
        if column in geography
    }


def named_columns(entities: Entities) -> dict[str, pa.Array]:
    """NAME, INTPTLAT and INTPTLON of entities, as far as the geography has them."""
    found = own_columns(entities)
    return {name: found[name] for name in (NAME, *POINT) if name in found}


def further_column(geography: pd.DataFrame, name: str) -> pa.Array:
    """A column of codes or names; empty where it holds texts that a delimited record cannot."""
    column = texts_of(geography[name])
    fits = pc.match_substring_regex(column, '^[^|"\\r\\n]*$')
    return pc.if_else(pc.fill_null(fits, False), column, "")


def variable_name(table: str, number: int) -> str:
    """The public name of a variable, numbered from 1.

    >>> variable_name("P5", 10)
    'P0050010'
    """
    return f"{table[0]}{int(table[1:]):03d}{number:04d}"


def tables_of(schema: Schema) -> tuple[str, ...]:
    """The tables that can be counted from a schema."""
    return tuple(table.name for table in _tables(schema))


def variables_of(schema: Schema) -> tuple[str, ...]:
    """Names of all variables that can be counted from a schema, in the order of the tables."""
    return tuple(_variables(schema))


def variable_labels(schemas: Iterable[Schema]) -> dict[str, str]:
    """Description of every variable of universes, by its name."""
    return {name: label for own in schemas for name, (label, _) in _variables(own).items()}


@lru_cache(maxsize=4)
def variable_matrix(schema: Schema) -> np.ndarray:
    """The 0/1 matrix that turns histograms into tables, shape `(n_cells, n_variables)`.

    `histograms @ variable_matrix(schema)` has a row for each histogram and a column for each of
    `variables_of(schema)`.
    """
    masks = [mask for _, mask in _variables(schema).values()]
    matrix = np.array(masks, dtype=np.int64).reshape(-1, schema.n_cells).T
    return np.ascontiguousarray(matrix)


@lru_cache(maxsize=4)
def _variables(schema: Schema) -> dict[str, tuple[str, np.ndarray]]:
    """By name, the description and the mask `(n_cells,)` of the cells of every variable."""
    return {
        variable_name(table.name, number): variable
        for table in _tables(schema)
        for number, variable in enumerate(table_variables(table, schema), start=1)
    }


def _tables(schema: Schema) -> list[TableDeclaration]:
    """The declared tables of a schema's universe whose attributes it has."""
    return [
        table
        for table in CENSUS.declared.tables
        if table.universe == schema.universe and has_attributes(schema, names_of_table(table))
    ]
