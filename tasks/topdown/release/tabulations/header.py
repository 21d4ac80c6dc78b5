"""The geographic header of a P.L. 94-171 release: 97 fields a record.

What the geography frame, the summary level and the state give is filled in; a field that none of
them gives is empty, as fields are that do not apply. Further columns of the geography frame that
are named as a field (SDUNI, VTD, CBSA, AREALAND, ...) fill it where that field is given: all of
them for blocks, metropolitan areas for every entity of a county, areas as sums over blocks. Names
and points of entities are those of `names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ....census.queries import incidence
from ....census.states import state_of
from ....runs.declared import read_declared
from .levels import COLUMNS, OUTSIDE, Entities, texts_of
from .names import further_column, own_columns
from .tables import geoid

_DECLARED = read_declared(Path(__file__).parent / "presets" / "header.toml")

HEADER_FIELDS = tuple(_DECLARED["fields"].split())
"""Names of the fields, in order."""

CONSTANTS: Mapping[str, str] = _DECLARED["constants"]
"""Fields that every record has alike."""

_METROPOLITAN = ("CBSA", "MEMI", "CSA", "METDIV")
"""Fields that hold for a whole county."""
_WITHIN_COUNTIES = ("050", "060", "140", "150")

_AREAS = ("AREALAND", "AREAWATR")


def header_columns(entities: Entities, geography: pd.DataFrame) -> dict[str, pa.Array]:
    """The header fields that are known of entities, by name.

    Left out are LOGRECNO, POP100 and HU100, which are not geography, and fields that are empty.
    """
    level = entities.level
    n = len(entities)
    constants = {
        **CONSTANTS,
        "SUMLEV": level.code,
        "LSADC": _DECLARED["legal_descriptions"].get(level.code, ""),
        "FUNCSTAT": _DECLARED["functional_statuses"].get(level.code, ""),
    }
    columns = {name: pa.repeat(pa.scalar(value), n) for name, value in constants.items()}
    columns |= entities.parts
    columns |= _state_columns(entities.parts["STATE"])
    columns["GEOCODE"] = entities.geocode
    columns["GEOID"] = geoid(level, entities.geocode)
    columns["BASENAME"], columns["NAME"] = _names(entities)
    if level.code == "750":
        columns |= _block_columns(geography)
    elif level.code in _WITHIN_COUNTIES:
        for name in set(_METROPOLITAN) & set(geography.columns):
            columns[name] = further_column(geography, name).take(entities.first_block)
    for name in set(_AREAS) & set(geography.columns):
        columns[name] = _area(entities, geography[name])
    for name, column in own_columns(entities, geography).items():
        known = columns.get(name, pa.repeat(pa.scalar(""), len(entities)))
        columns[name] = pc.if_else(pc.equal(column, ""), known.cast(pa.string()), column)
    return columns


def _state_columns(fips: pa.Array) -> dict[str, pa.Array]:
    encoded = fips.dictionary_encode()
    states = [state_of(code) for code in encoded.dictionary.to_pylist()]
    return {
        name: pa.array([getattr(state, attribute) for state in states], pa.string()).take(
            encoded.indices
        )
        for name, attribute in _DECLARED["of_states"].items()
    }


def _block_columns(geography: pd.DataFrame) -> dict[str, pa.Array]:
    """Fields of blocks: entities they belong to, and every further column named as a field.

    Blocks by geocode stand in the order of the geography frame.
    """
    further = set(HEADER_FIELDS) & set(geography.columns) - set(_AREAS)
    columns = {name: further_column(geography, name) for name in further}
    for name, column in COLUMNS.items():
        columns[name] = texts_of(geography[column])
    columns["BLKGRP"] = pc.utf8_slice_codeunits(texts_of(geography["block_geocode"]), 11, 12)
    for part, fields in _DECLARED["outside"].items():
        is_outside = pc.equal(columns[part], OUTSIDE[part])
        for name, code in fields.items():
            if name not in columns:
                columns[name] = pc.if_else(is_outside, code, "")
    return columns


def _names(entities: Entities) -> tuple[pa.Array, pa.Array]:
    """BASENAME and NAME; an entity whose name is not known goes by its code."""
    level = entities.level
    code = entities.parts[level.parts[-1]]
    if level.code == "040":
        names = pa.array([state_of(fips).name for fips in code.to_pylist()], pa.string())
        return names, names
    if level.code == "140":
        # The last two of the six digits are decimals, written only where there are any.
        whole = pc.utf8_ltrim(pc.utf8_slice_codeunits(code, 0, 4), "0")
        decimals = pc.utf8_slice_codeunits(code, 4, 6)
        with_decimals = pc.binary_join_element_wise(whole, decimals, ".")
        code = pc.if_else(pc.equal(decimals, "00"), whole, with_decimals)
        return code, pc.binary_join_element_wise("Census Tract ", code, "")
    kind = level.name if level.code == "280" else level.name.title()
    return code, pc.binary_join_element_wise(f"{kind} ", code, "")


def _area(entities: Entities, column: pd.Series) -> pa.Array:
    """Square metres, summed over the blocks of each entity; empty if some block's is no number."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any():
        return pa.repeat(pa.scalar(""), len(entities))
    values = numbers.to_numpy(dtype=np.int64)
    return pa.array(incidence(entities.block_entity, len(entities)) @ values)
