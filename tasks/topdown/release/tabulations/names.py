"""Names, codes and points of geographic entities, from further columns of the geography.

A column PART_FIELD of the geography (COUNTY_NAME, PLACE_LSADC, TRACT_INTPTLAT, ...) has the field
of the geographic header for entities of that kind: a county's name stands in the rows of all its
blocks. For blocks the columns are named as the fields. A column such as COUNTYNS or PLACECC holds
for every entity whose geocode has that part. Where blocks have points and an entity has none of its
own, its point is the mean of its blocks', weighted by land area where that is known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .levels import Entities, texts_of

NAME = "NAME"
POINT = ("INTPTLAT", "INTPTLON")
OWN_FIELDS = (NAME, "BASENAME", "LSADC", "FUNCSTAT", *POINT)
"""Fields of the header that each kind of entity has its own columns for."""

_CODES_OF_PARTS = ("CC", "NS")
"""What a part's class code and its ANSI code end with."""

_BLOCK = "BLOCK"
_LAND = "AREALAND"


def own_columns(entities: Entities, geography: pd.DataFrame) -> dict[str, pa.Array]:
    """The fields of entities that the geography has columns for, by name; empty where blank."""
    kind = entities.level.parts[-1]
    columns = {name: name if kind == _BLOCK else f"{kind}_{name}" for name in OWN_FIELDS}
    columns |= {
        f"{part}{ending}": f"{part}{ending}"
        for part in entities.level.parts
        for ending in _CODES_OF_PARTS
    }
    found = {
        name: further_column(geography, column).take(entities.first_block)
        for name, column in columns.items()
        if column in geography
    }
    if set(POINT) <= set(geography.columns) and not set(POINT) & set(found):
        found |= _points(entities, geography)
    return found


def named_columns(entities: Entities, geography: pd.DataFrame) -> dict[str, pa.Array]:
    """NAME, INTPTLAT and INTPTLON of entities, those of them that the geography tells."""
    found = own_columns(entities, geography)
    return {name: found[name] for name in (NAME, *POINT) if name in found}


def further_column(geography: pd.DataFrame, name: str) -> pa.Array:
    """A column of codes or names; empty where it holds texts that a delimited record cannot."""
    column = texts_of(geography[name])
    fits = pc.match_substring_regex(column, '^[^|"\\r\\n]*$')
    return pc.if_else(pc.fill_null(fits, False), column, "")


def _points(entities: Entities, geography: pd.DataFrame) -> dict[str, pa.Array]:
    """Mean points of entities; empty where a block of theirs has none.

    Points are averaged on the sphere, so that an entity on both sides of the 180th meridian lies
    between its blocks. Blocks weigh as much as they have land, alike if the entity has none.
    """
    latitude, longitude = (
        np.radians(pd.to_numeric(geography[name], errors="coerce").to_numpy(float))
        for name in POINT
    )
    inside = entities.block_entity >= 0
    entity, n = entities.block_entity[inside], len(entities)
    weight = np.ones(len(entity))
    if _LAND in geography:
        land = pd.to_numeric(geography[_LAND], errors="coerce").to_numpy(float)[inside]
        has_land = np.bincount(entity, np.nan_to_num(land), minlength=n) > 0
        weight = np.where(has_land[entity], np.nan_to_num(land), 1.0)
    across = np.cos(latitude)
    x, y, z = (
        np.bincount(entity, weight * axis[inside], minlength=n)
        for axis in (across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude))
    )
    means = (np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x)))
    return {
        name: pa.array(
            [f"{value:+0{width}.7f}" if np.isfinite(value) else "" for value in values], pa.string()
        )
        for name, width, values in zip(POINT, (11, 12), means, strict=True)
    }
