"""Areas that somebody asks about, by name: lists of blocks, polygons, geounits, and pairs."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.levels import Spine
from ...runs.errors import InputRefused
from ...tables.formats import SEPARATORS, UTF_8, TextFormat
from ...tables.sources import encoding_of
from .areas import BlockAreas

BLOCK = "block"
"""The column of the finest areas' codes, and what those of the census of 2020 are called."""
PUBLISHED = {"BLOCKID": BLOCK, "DISTRICT": "area"}
"""Columns of published block assignment files, and what they are here."""
NO_DISTRICT = r"Z+"
"""What stands there for a block of no district."""
GROUP_DIGIT = 11
"""Place of the block group in a geocode of 16 digits, after state, county and tract."""
MOST_SHOWN = 3
"""Unknown codes that a message quotes: they are of a list that somebody gave, not of the input."""


@dataclass(frozen=True, eq=False)
class KnownBlocks:
    """The finest areas of a run: `geocode` of all in its geography, those that can hold nobody
    included, `short`, other codes of each where these are unique, and what messages call one.
    """

    geocode: pd.Index
    short: pd.Index | None = None
    word: str = BLOCK

    @classmethod
    def of(cls, geography: pd.DataFrame, last: str | None = None) -> KnownBlocks:
        """From a geography frame; `last` is the last geolevel of a declared census, by which
        messages call the areas, and its column with their codes."""
        geocode, word = pd.Index(geography["block_geocode"].astype(object)), last or BLOCK
        if last is None:
            return cls(geocode, _published_codes(geocode), word)
        if last not in geography or geography[last].duplicated().any():
            return cls(geocode, None, word)
        return cls(geocode, pd.Index(geography[last].astype(object)), word)

    def geocodes(self, codes: pd.Series) -> np.ndarray:
        """Geocodes (n,) of blocks by either of their codes.

        Raises InputRefused for codes that no block has, with their number and a few of them.
        """
        number = self.geocode.get_indexer(codes)
        if self.short is not None:
            number = np.where(number < 0, self.short.get_indexer(codes), number)
        unknown = codes[number < 0].drop_duplicates().tolist()
        if unknown:
            several = f"{len(unknown):,} codes that are" if len(unknown) > 1 else "a code that is"
            some = ", ".join(repr(code) for code in unknown[:MOST_SHOWN])
            further = ", and so on" if len(unknown) > MOST_SHOWN else ""
            which = "as published," if self.word == BLOCK else "of the last geolevel"
            also = "" if self.short is None else f", or {which} as {self.short[0]!r}"
            raise InputRefused(
                f"The areas list {several} of no {self.word} of the run: {some}{further}; write "
                f"all parts of a code, as in {self.geocode[0]!r}{also}."
            )
        return self.geocode.to_numpy(dtype=object)[number]


def _published_codes(geocode: pd.Index) -> pd.Index | None:
    """The codes of 15 digits by which the Census Bureau publishes blocks: without the digit of the
    block group, which is the first of the block's own. None where they do not tell blocks apart, or
    geocodes are others.
    """
    if not geocode.str.fullmatch(r"\d{16}").all():
        return None
    published = geocode.str.slice(0, GROUP_DIGIT) + geocode.str.slice(GROUP_DIGIT + 1)
    return published if published.is_unique else None


@dataclass(frozen=True, eq=False)
class NamedAreas:
    """Names (n_areas,) and the blocks of each."""

    names: np.ndarray
    blocks: BlockAreas

    @classmethod
    def listed(
        cls, areas: pd.DataFrame, known: KnownBlocks, block_geocode: np.ndarray
    ) -> NamedAreas:
        """From a table with the columns `area` and `block`. Known blocks that are not on the spine
        can hold nobody, and count as none.

        Raises InputRefused for blocks that are not known, and if there are none on the spine.
        """
        names, number = np.unique(areas["area"].to_numpy(dtype=object), return_inverse=True)
        block = pd.Index(block_geocode).get_indexer(known.geocodes(areas["block"]))
        if not (block >= 0).any():
            raise InputRefused(f"No {known.word} that the areas list can hold anybody.")
        return cls(names, BlockAreas.of_pairs(len(names), block, number.reshape(-1)))

    @classmethod
    def of_geolevel(cls, spine: Spine, geolevel: str) -> NamedAreas:
        """The geounits of a geolevel."""
        geocode = spine.geolevel(geolevel).geocode
        geounit = spine.ancestors(geolevel)
        return cls(geocode, BlockAreas.of_pairs(len(geocode), np.arange(len(geounit)), geounit))

    def numbers(self, names: pd.Series, file: Path) -> np.ndarray:
        """Numbers of areas by name; InputRefused for one that `file` names and that is unknown."""
        number = pd.Index(self.names).get_indexer(names)
        if (number < 0).any():
            unknown = names[number < 0].iloc[0]
            raise InputRefused(
                f"{file} names {unknown!r}, which is none of the areas or geounits that are "
                "compared; write names as the list of areas, or the geolevel, has them."
            )
        return number


def read_areas(
    path: Path, last: str | None = None, written: TextFormat | None = None
) -> pd.DataFrame:
    """Areas as lists of blocks, from CSV or Parquet with the columns `area` and `block`, or from a
    published block assignment file (BLOCKID and DISTRICT, in which ZZ is no district).

    Of a declared census, whose last geolevel is `last`, its column may also have that name.
    `written` is how its files are, where the declaration says so and the file does not show it.
    """
    table, how = _read(path, written)
    return _area_columns(table, f"{path}{how}", last)


def listed_areas(areas: Any, points: pd.DataFrame | None, last: str | None = None) -> pd.DataFrame:
    """Areas as lists of blocks, from a frame with the columns `area` and `block`, or from polygons.

    Polygons are a frame of geopandas or GeoJSON as a mapping, each with its name as `area`; a block
    is in those that its point lies in, or touches. `points` has `block`, `latitude` and `longitude`
    in degrees, where the run knows them.
    """
    if isinstance(areas, pd.DataFrame) and "geometry" not in areas.columns:
        return _area_columns(areas, "The frame", last)
    if isinstance(areas, pd.DataFrame | Mapping):
        return _within(areas, points)
    raise InputRefused(
        "Areas are a data frame with the columns 'area' and 'block', or polygons: a frame of "
        "geopandas, or GeoJSON."
    )


def _within(polygons: Any, points: pd.DataFrame | None) -> pd.DataFrame:
    if points is None:
        raise InputRefused(
            "Polygons need a point of every block: declare latitude and longitude of the last "
            "geolevel under census.geography.entities, or give a frame of areas and blocks."
        )
    if find_spec("geopandas") is None:
        raise InputRefused("Polygons need geopandas: install spineflow[maps].")
    import geopandas

    if not isinstance(polygons, pd.DataFrame):
        try:
            polygons = geopandas.GeoDataFrame.from_features(polygons, crs="EPSG:4326")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputRefused(
                "The areas are no GeoJSON; give a mapping with 'features', each with a 'geometry'."
            ) from None
    if "area" not in polygons:
        raise InputRefused("The polygons have no names: give them a column 'area'.")
    if polygons.crs is not None:
        polygons = polygons.to_crs("EPSG:4326")
    at = geopandas.points_from_xy(points["longitude"], points["latitude"])
    blocks = geopandas.GeoDataFrame(points[["block"]], geometry=at, crs=polygons.crs)
    found = blocks.sjoin(polygons[["area", "geometry"]], predicate="intersects")
    missing = sorted(set(polygons["area"].astype(str)) - set(found["area"].astype(str)))
    if missing:
        raise InputRefused(
            f"There is no block's point in the polygons of {len(missing):,} areas, such as "
            f"{missing[0]!r}; they must be in degrees, or say in which coordinates they are."
        )
    return found[["area", "block"]].astype(str).drop_duplicates().reset_index(drop=True)


def points_of(geography: pd.DataFrame, latitude: str, longitude: str) -> pd.DataFrame:
    """Blocks of a geography frame with the points that two of its columns tell, those that do."""
    numbers = {
        name: pd.to_numeric(geography[column], errors="coerce")
        for name, column in (("latitude", latitude), ("longitude", longitude))
    }
    return pd.DataFrame({"block": geography["block_geocode"], **numbers}).dropna()


def read_pairs(path: Path, written: TextFormat | None = None) -> pd.DataFrame:
    """What is compared with what, from CSV or Parquet with the columns `first` and `second`."""
    meaning = "each row names two areas or geounits that are compared, in 'first' and 'second'"
    table, how = _read(path, written)
    return _columns(table, f"{path}{how}", ("first", "second"), meaning)


def _area_columns(table: pd.DataFrame, where: str, last: str | None) -> pd.DataFrame:
    """The columns `area` and `block`, the latter also under the name of the last geolevel."""
    word = last or BLOCK
    if word == BLOCK and {*PUBLISHED} <= {*table.columns}:
        table = table.rename(columns=PUBLISHED)
        table = table[~table["area"].astype(str).str.fullmatch(NO_DISTRICT)]
    if BLOCK not in table and word in table:
        table = table.rename(columns={word: BLOCK})
    where_it_stands = f"'{BLOCK}', or 'DISTRICT' and 'BLOCKID' as published"
    if last is not None:
        where_it_stands = f"'{word}' or '{BLOCK}'"
    meaning = (
        "an area is the rows with its name in 'area', each with the code of a "
        f"{word} in {where_it_stands}"
    )
    return _columns(table, where, ("area", BLOCK if BLOCK in table else word), meaning)


def _read(path: Path, written: TextFormat | None) -> tuple[pd.DataFrame, str]:
    """A table of texts, and how it was read where a declaration told its encoding.

    What the file shows counts before what a format says: a separator that its header lacks is not
    its own.
    """
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe, a socket or a device"
        raise InputRefused(f"{path} is {what}; name a CSV or Parquet file.")
    text_format = TextFormat() if written is None else written
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path), ""
        content = path.read_bytes()
        encoding = _encoding_of_file(content, text_format.encoding)
        text = content.decode("utf-8-sig" if encoding == UTF_8 else encoding)
        header = text.partition("\n")[0]
        separator = text_format.separator
        if separator is None or separator not in header:
            separator = max((",", *SEPARATORS), key=header.count)
        options: dict[str, Any] = {"dtype": str, "keep_default_na": False}
        table = pd.read_csv(io.StringIO(text), sep=separator, **options)
        is_declared = text_format.encoding is not None and encoding not in (UTF_8, "utf-16")
        return (
            table,
            f", read in {text_format.encoding} as {text_format.key} says," if is_declared else "",
        )
    except UnicodeError:
        name, mark = "UTF-8", ""
        if text_format.encoding is not None:
            name, mark = (
                f"{text_format.encoding}, as {text_format.key} says",
                " with a byte order mark",
            )
        raise InputRefused(
            f"{path} is no text in {name}; save it as UTF-8{mark}, or as Parquet."
        ) from None
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise InputRefused(f"{path} cannot be read: {type(error).__name__}.") from None


def _encoding_of_file(content: bytes, declared: str | None) -> str:
    """The encoding of a text: the one that is told, or shown by a mark, unless it is UTF-8.

    UTF-8 that is not mere ASCII cannot be by chance what a code of one byte for each character has
    written. Raises UnicodeError for what is in neither.
    """
    encoding = encoding_of(content[:3], declared)
    if encoding == UTF_8 or content.isascii():
        return encoding
    try:
        content.decode(UTF_8)
    except UnicodeError:
        return encoding
    has_single_bytes = len(content.decode(encoding)) == len(content)
    return UTF_8 if has_single_bytes else encoding


def _columns(table: pd.DataFrame, where: str, columns: Iterable[str], meaning: str) -> pd.DataFrame:
    """Some columns of a table as texts, without rows that are repeated."""
    names = list(columns)
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InputRefused(f"{where} has no column {missing[0]!r}; {meaning}.")
    texts = table[names].astype(str).apply(lambda column: column.str.normalize("NFC"))
    return texts.drop_duplicates().reset_index(drop=True)
