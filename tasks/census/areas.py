"""The areas of a declared census: read, checked, sorted, and found again by their codes; facts
about them that follow from the rules of their geography.

The entities of a level of declared areas: their areas, names and positions.

A level is a geolevel or another column of the table of areas. Names and points are in the declared
columns of the table; every area of an entity repeats them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from ...geography.declared import GEOCODE, Units, area_paths, declared_units
from ..tables.area_lists import read_whole
from ..tables.columns import CodedColumn, without_point
from ..tables.formats import TextFormat
from ..tables.layouts import Field, TableLayout
from ..tables.readers import Selection
from ..tables.sources import InputFile
from ..tables.value_tallies import ValueTally
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
    """The columns of the table of areas that an entry names, by their contents."""
    return {name: column for name, column in entry if column is not None}


def descriptions(
    areas: pd.DataFrame, declared: CensusGeography, level: str
) -> dict[str, Sequence[str]]:
    """Name, latitude and longitude of the entities of a level, as far as declared.

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


def refuse_alike(areas: Areas, universe: str, named: Sequence[str], file: InputFile) -> None:
    """Raise UnreadableInput where the codes in records do not identify areas.

    `named` are the columns with the codes of a record's area at the last geolevels.
    """
    names = areas.columns[-len(named) :]
    if len(names) < len(named):
        rule = (
            f"the universe {universe} has {len(named)} columns in area, of {len(names)} geolevels"
        )
        raise file.unreadable(rule, "name a column for each of the last geolevels, or for all")
    alike = areas.frame.duplicated(list(names), keep=False)
    # Areas with equal whole paths break a rule on the table of areas.
    if len(names) < len(areas.columns) and alike.any():
        rule = (
            f"areas must not share their codes of {' and '.join(names)}, by which records of "
            f"{universe} find their area"
        )
        above = areas.columns[-len(named) - 1]
        remedy = f"let area of {universe} name a column with the codes of {above} as well"
        raise file.unreadable(rule, remedy, column=names[-1], count=int(alike.sum()))


def _first_areas(number: np.ndarray) -> np.ndarray:
    """Position of each entity's first area, in the order of `entities`."""
    inside = np.flatnonzero(number >= 0)
    return inside[np.unique(number[inside], return_index=True)[1]]


def _are_degrees(texts: np.ndarray, farthest: float) -> bool:
    given = pd.Series(texts[texts != ""], dtype=object)
    degrees = pd.to_numeric(given, errors="coerce")
    return bool((degrees.abs() <= farthest).all())


def needed_columns(declared: CensusGeography, tables: Iterable[TableDeclaration]) -> set[str]:
    """Columns of the table of areas, in addition to the geolevels, that tables and entities
    name."""
    named = {level for table in tables for level in table.levels} | set(declared.entities)
    of_entities = {
        column for entry in declared.entities.values() for column in columns_of(entry).values()
    }
    return (named - set(declared.geolevels)) | of_entities


@dataclass(frozen=True, eq=False)
class Areas:
    """The areas, sorted by their paths, and the geounits of every declared geolevel.

    `frame` has the column `block_geocode` (the path), the geolevels' columns and all others of the
    table, as texts. `columns` are the geolevels below the root that are columns.
    """

    frame: pd.DataFrame
    columns: tuple[str, ...]
    units: Mapping[str, Units]
    skipped: frozenset[str] = frozenset()
    """Geolevels whose blank codes are replaced by those of the geolevel above."""

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def codes(self) -> np.ndarray | None:
        """Codes (n_areas,) that identify areas without the path: those of the last geolevel, or
        else those of all geolevels one after the other; None where neither do.
        """
        last = self.frame[self.columns[-1]]
        if not last.duplicated().any():
            return last.to_numpy(dtype=object)
        joined = joined_codes(self.frame, self.columns)
        return None if pd.Series(joined).duplicated().any() else joined


def code_columns(geolevels: Sequence[str], columns: Collection[str]) -> tuple[str, ...]:
    """The geolevels below the root, the first one, for which areas with these columns have codes.

    >>> code_columns(("country", "district", "section"), ["block_geocode", "section"])
    ('section',)
    """
    return tuple(name for name in geolevels[1:] if name in columns)


def joined_codes(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """(n_areas,) object array: the codes of the geolevels' columns, one after the other."""
    text, *further = (frame[name].to_numpy(dtype=object) for name in columns)
    for part in further:
        text = text + part
    return text


class AreaIndex:
    """Find the row of an area by the codes of the last geolevels, which identify areas."""

    def __init__(self, areas: Areas, n_columns: int) -> None:
        names = areas.columns[-n_columns:]
        self._is_skipped = [n_columns > 1 and name in areas.skipped for name in names]
        self._known: list[dict[str, int]] = []
        key = np.zeros(len(areas), dtype=np.int64)
        for name in names:
            code, distinct = pd.factorize(areas.frame[name])
            self._known.append({value: i for i, value in enumerate(distinct)})
            key = key * len(distinct) + code
        self._rows = np.argsort(key, kind="stable")
        self._keys = key[self._rows]

    def positions(self, columns: Sequence[CodedColumn]) -> np.ndarray:
        """Row of each record's area, shape `(n_records,)`; -1 for codes that no area has."""
        key = np.zeros(len(columns[0].codes), dtype=np.int64)
        is_known = np.ones(len(key), dtype=bool)
        above = columns[0]
        for known, column, is_skipped in zip(self._known, columns, self._is_skipped, strict=True):
            above = _filled(column, above) if is_skipped else column
            code = above.lookup(partial(number_in, known), np.int64)
            is_known &= code >= 0
            key = key * len(known) + code
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        is_known &= self._keys[at] == key
        return np.where(is_known, self._rows[at], -1)


def _filled(column: CodedColumn, above: CodedColumn) -> CodedColumn:
    """Fill blanks of a column of codes with codes of the geolevel above."""
    n = len(column.values)
    is_blank = column.lookup(lambda code: code is None, bool)
    return CodedColumn(
        np.where(is_blank, above.codes + n, column.codes), column.values + above.values
    )


def number_in(known: Mapping[str, int], code: str | None) -> int:
    """The number of a known code; -1 for others and for a blank."""
    if code is None:
        return -1
    return known[code] if code in known else known.get(without_point(code), -1)


def load_areas(
    files: Sequence[InputFile],
    declared: CensusGeography,
    evidence: ValueTally,
    further: Collection[str] = (),
) -> Areas:
    """Read the table of areas and sort it by path.

    Evidence: blank codes of every geolevel, and rows of one path. A geolevel just above the last
    may have no column, where the spine forms it. `further` columns must be there. Raises
    UnreadableInput, for entities whose areas disagree on their names or points too.
    """
    table, below = declared.table, declared.geolevels[1:]
    column_of = {name: declared.columns.get(name, name) for name in below}
    # One that an optimised spine forms may have no column.
    formed = below[-2] if len(below) > 1 else None
    own = [column_of[name] for name in below if name != formed]
    required = (*own, *sorted(set(further) - set(own)))
    own_files = shaped(files, tuple(column_of.values()), (), evidence)
    read = read_whole(own_files, Selection(required, with_others=True))
    evidence.files.add(own_files, read.n_rows)
    texts = {name: pd.array(own.texts(), dtype="str") for name, own in read.columns.items()}
    frame = pd.DataFrame(
        texts | {name: texts[column] for name, column in column_of.items() if column in texts}
    )
    columns = tuple(name for name in below if name in frame)
    skipped = frozenset(declared.skipped or ())
    for at, name in enumerate(columns):
        is_blank = frame[name].isna()
        if at and name in skipped:
            # Another within the same geounit above has the code that would replace the blank.
            above = [frame[one] for one in columns[:at]]
            is_taken = (frame[name] == above[-1]).groupby(above, sort=False).transform("any")
            evidence.add_mask(table, f"taken_{name}", (is_blank & is_taken).to_numpy())
            frame[name] = frame[name].fillna(above[-1])
        else:
            evidence.add_mask(table, f"blank_{name}", is_blank.to_numpy())
            frame[name] = frame[name].fillna("")
    frame = frame.drop(columns=GEOCODE, errors="ignore")
    path = area_paths(frame, columns)
    order = np.argsort(path.astype(str), kind="stable")
    repeated = pd.Series(path).duplicated(keep=False).to_numpy()
    evidence.add_mask(table, "repeated_area", repeated)
    frame = frame.iloc[order].reset_index(drop=True)
    frame.insert(0, GEOCODE, pd.array(path[order], dtype="str"))
    refuse_unfit_descriptions(frame, declared, files[0])
    return Areas(frame, columns, declared_units(frame, declared.geolevels), skipped)


def shaped(
    files: Sequence[InputFile],
    columns: Sequence[str],
    keys: Sequence[str],
    evidence: ValueTally,
) -> tuple[InputFile, ...]:
    """Return the files of a declared table with its layout: columns of codes, identifiers, and
    those that its declaration places; record the format of the files in the evidence.
    """
    written = files[0].format or TextFormat()
    sources = [name for cell in written.cells.values() for name in (cell.x, cell.y)]
    fields = tuple(
        Field(name, "key" if name in keys else "code", written.places.get(name))
        for name in dict.fromkeys((*columns, *keys, *written.places, *sources))
    )
    layout = TableLayout(files[0].table, fields, written.line_length, column_names="expected")
    found = tuple(replace(file, layout=layout) for file in files)
    evidence.files.add(found)
    return found
