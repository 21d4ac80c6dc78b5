"""The entities of a level of declared areas: which areas each has, what it is called, where it is.

A level is a geolevel or another column of the table of areas. Names and points stand in columns of
the table, as the declaration tells; every area of an entity repeats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from ...geography.declared import declared_units
from ..tables.sources import InputFile
from .declarations import CensusGeography, EntityColumns, TableDeclaration

FARTHEST = {"latitude": 90.0, "longitude": 180.0}
"""Largest degrees of each coordinate, east and north or west and south."""


def entities(
    areas: pd.DataFrame, geolevels: Sequence[str], level: str
) -> tuple[np.ndarray, Sequence[str]]:
    """Number of each area's entity of a level, -1 for none, and the entities' codes."""
    if level in geolevels:
        units = declared_units(areas, geolevels)[level]
        return units.number, units.path.tolist()
    code, distinct = pd.factorize(areas[level].replace("", None), sort=True)
    return code, distinct.tolist()


def described_columns(declared: CensusGeography, levels: Iterable[str]) -> tuple[str, ...]:
    """Which of name, latitude and longitude the entities of some of these levels have."""
    own = [columns_of(declared.entities[level]) for level in levels if level in declared.entities]
    return tuple(name for name in EntityColumns.model_fields if any(name in of for of in own))


def columns_of(entry: EntityColumns) -> dict[str, str]:
    """The columns of the table of areas that an entry names, by what they tell."""
    return {name: column for name, column in entry if column is not None}


def descriptions(
    areas: pd.DataFrame, declared: CensusGeography, level: str
) -> dict[str, Sequence[str]]:
    """Name, latitude and longitude of the entities of a level, those of them that are declared.

    Each has a text for every entity, in the order of `entities`; empty where the table has none.
    """
    entry = declared.entities.get(level)
    if entry is None:
        return {}
    number, code = entities(areas, declared.geolevels, level)
    first = _first_areas(number)
    return {
        name: areas[column].fillna("").to_numpy(dtype=object)[first].tolist()
        for name, column in columns_of(entry).items()
    }


def refuse_unfit_descriptions(
    areas: pd.DataFrame, declared: CensusGeography, file: InputFile
) -> None:
    """Raise UnreadableInput where areas of one entity disagree on its name or place, or where a
    coordinate is no number of degrees."""
    for level, entry in declared.entities.items():
        number, code = entities(areas, declared.geolevels, level)
        first = _first_areas(number)
        for name, column in columns_of(entry).items():
            texts = areas[column].fillna("").to_numpy(dtype=object)
            inside = number >= 0
            unequal = texts[inside] != texts[first][number[inside]]
            if unequal.any():
                rule = f"the column {column} has several values within a {level}"
                remedy = f"repeat the same {name} in every area of it"
                raise file.unreadable(rule, remedy, column=column)
            if name in FARTHEST and not _are_degrees(texts[first], FARTHEST[name]):
                rule = f"the column {column} is no {name} in degrees"
                ends = f"-{FARTHEST[name]:.0f} and {FARTHEST[name]:.0f}"
                remedy = f"give numbers between {ends}, or nothing where it is not known"
                raise file.unreadable(rule, remedy, column=column)


def _first_areas(number: np.ndarray) -> np.ndarray:
    """Position of each entity's first area, in the order of `entities`."""
    inside = np.flatnonzero(number >= 0)
    return inside[np.unique(number[inside], return_index=True)[1]]


def _are_degrees(texts: np.ndarray, farthest: float) -> bool:
    given = pd.Series(texts[texts != ""], dtype=object)
    degrees = pd.to_numeric(given, errors="coerce")
    return bool((degrees.abs() <= farthest).all())


def needed_columns(declared: CensusGeography, tables: Iterable[TableDeclaration]) -> set[str]:
    """Columns of the table of areas, besides the geolevels, that tables and entities name."""
    named = {level for table in tables for level in table.levels} | set(declared.entities)
    of_entities = {
        column for entry in declared.entities.values() for column in columns_of(entry).values()
    }
    return (named - set(declared.geolevels)) | of_entities
