"""File formats of a table, and its columns after the format's blanks and numbers are
applied; points in the cells of a square grid of the European codes (ETRS89-LAEA).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unicodedata import normalize

import pyarrow as pa
import pyarrow.compute as pc
import pydantic

from ..runs.settings import ExactTypes
from .columns import canonical_text, without_point
from .layouts import Field

_WHOLE_METRES = r"^\s*(?P<whole>[0-9]{1,9})(?:[.,][0-9]*)?\s*$"


class GridCells(ExactTypes):
    """A column with the codes of the grid cells that contain points, such as
    `CRS3035RES1000mN2689000E4337000`, by the cell's south-west corner."""

    x: str
    """Column of the eastings, in metres; fractions are dropped."""
    y: str
    """Column of the northings, in metres."""
    size: int = pydantic.Field(ge=1)
    """Side of a cell, in metres."""
    crs: int = pydantic.Field(default=3035, ge=1)
    """EPSG number of the coordinates, part of the codes; 3035 is ETRS89-LAEA Europe."""

    def codes(self, batch: Mapping[str, pa.Array]) -> pa.Array:
        """The cell of every row; null where a coordinate is blank, negative or no number.

        A cell has the code of its south-west corner; its west and south sides belong to it.

        >>> point = {"E": pa.array(["4337999.9"]), "N": pa.array([2689000])}
        >>> GridCells(x="E", y="N", size=1000).codes(point).to_pylist()
        ['CRS3035RES1000mN2689000E4337000']
        """
        north, east = (self._corners(batch[name]) for name in (self.y, self.x))
        start = pa.scalar(f"CRS{self.crs}RES{self.size}mN")
        return pc.binary_join_element_wise(start, north, "E", east, "")

    def _corners(self, coordinates: pa.Array) -> pa.Array:
        """The smaller coordinate of each row's cell, as text."""
        if pa.types.is_dictionary(coordinates.type):
            coordinates = coordinates.dictionary_decode()
        if pa.types.is_floating(coordinates.type):
            is_whole = pc.and_(pc.greater_equal(coordinates, 0.0), pc.less(coordinates, 1e9))
            floor = pc.floor(pc.if_else(is_whole, coordinates, None))
            coordinates = floor.cast(pa.int64())
        found = pc.extract_regex(coordinates.cast(pa.string()), _WHOLE_METRES)
        whole = pc.struct_field(found, "whole").cast(pa.int64())
        corner = pc.multiply(pc.divide(whole, self.size), self.size)
        return corner.cast(pa.string())


SEPARATORS = {"|": "pipes", ",": "commas", "\t": "tabs", ";": "semicolons"}
"""Possible separators of the fields of a row, and their names in messages."""

UTF_8 = "utf-8"
_NO_CHARACTERS = (
    "idna",
    "punycode",
    "undefined",
    "unicode",
    "raw",
    "utf-7",
    "utf_7",
    "mbcs",
    "oem",
)
"""Prefixes of Python encodings that are not encodings of text files."""
_DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


@dataclass(frozen=True)
class TextFormat:
    """How the files of a table are written, as far as settings say.

    separator, decimal, encoding : None where the files show them.
    is_missing : whether a cell's text is a blank.
    missing : the texts that are blanks, the only rule for identifiers.
    numbers : columns that are read as numbers, with a decimal mark.
    digits : by column, the digits of its codes, to which shorter numbers are padded with zeros.
    cells : by column that the files do not have, the grid whose cells it has.
    key : dotted key of this section of the settings, for remedies.
    places : for texts of fixed width, by column, the first character and the one after its last.
    line_length : characters of each of their lines; None for any other text.
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    is_missing: Callable[[str | None], bool] | None = None
    missing: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    digits: Mapping[str, int] = field(default_factory=dict)
    cells: Mapping[str, GridCells] = field(default_factory=dict)
    key: str = ""
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    line_length: int | None = None

    def decimal_beside(self, separator: str | None) -> str:
        """The decimal mark of numbers in texts with a separator, or in Parquet for None."""
        return self.decimal or ("," if separator == ";" else ".")

    def value(self, text: str | None, is_number: bool, digits: int = 0) -> str | None:
        """The text of one cell, whole numbers padded to so many digits; None for a blank."""
        if text is None or (self.is_missing is not None and self.is_missing(text)):
            return None
        if is_number:
            text = with_point(text)
        whole = without_point(text) if digits else text
        return whole.zfill(digits) if whole.isascii() and whole.isdigit() else text


def with_point(text: str) -> str:
    """A number with a decimal comma as one with a point, or as a whole number where it is one.

    >>> with_point("12,50"), with_point("12,0"), with_point("1,2,3")
    ('12.50', '12', '1,2,3')
    """
    found = _DECIMAL_COMMA.fullmatch(text)
    if found is None:
        return text
    whole, fraction = found.groups()
    return whole if not fraction.strip("0") else f"{whole}.{fraction}"


def checked_encoding(name: str) -> str:
    """An encoding that a file may be written in; raises ValueError for any other name."""
    try:
        known = codecs.lookup(name)
    except (LookupError, ValueError):
        known = None
    is_text = getattr(known, "_is_text_encoding", True)
    if known is None or not is_text or known.name.startswith(_NO_CHARACTERS):
        raise ValueError(
            "is no encoding of texts that is known; write for example 'utf-8', 'latin-1', "
            "'windows-1250' or 'shift-jis'"
        )
    return name


def clean_columns(
    text_format: TextFormat, batch: Mapping[str, pa.Array], separator: str | None = None
) -> dict[str, pa.Array]:
    """Columns with blanks for missing values, points for decimal commas, and texts in Unicode's
    normal form C, so that equal letters compare equal; `separator` separates the fields of a row,
    if any does.
    """
    decimal = text_format.decimal_beside(separator)
    return {name: _clean_column(text_format, name, array, decimal) for name, array in batch.items()}


def _clean_column(text_format: TextFormat, name: str, array: pa.Array, decimal: str) -> pa.Array:
    is_number = decimal == "," and name in text_format.numbers
    digits = text_format.digits.get(name, 0)
    if pa.types.is_dictionary(array.type):
        return _cleaned_codes(text_format, array, is_number, digits)
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if is_number or digits or (text_format.is_missing is not None and not is_text):
        coded = array.dictionary_encode()
        return _cleaned_codes(text_format, coded, is_number, digits).dictionary_decode()
    if not is_text:
        return array
    if not _is_plain(array):
        array = pc.utf8_normalize(array, form="NFC")
    if not text_format.missing:
        return array
    missing = pa.array(sorted(text_format.missing), array.type)
    is_missing = pc.is_in(pc.utf8_trim_whitespace(array), value_set=missing)
    return pc.if_else(is_missing, None, array)


def _cleaned_codes(
    text_format: TextFormat, array: pa.DictionaryArray, is_number: bool, digits: int
) -> pa.DictionaryArray:
    """A column of codes, each distinct one of which is looked at once."""
    has_changes = text_format.is_missing is not None or is_number or digits
    if not has_changes and _is_plain(array.dictionary):
        return array
    values = [
        text_format.value(canonical_text(value, Field("", "text")), is_number, digits)
        for value in array.dictionary.to_pylist()
    ]
    return _recode_texts(array, values)


def _is_plain(values: pa.Array) -> bool:
    """Whether values are no texts, or consist of letters with a single form."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    return not is_text or pc.all(pc.string_is_ascii(values)).as_py() in (True, None)


def _recode_texts(array: pa.DictionaryArray, values: list[str | None]) -> pa.DictionaryArray:
    """A column with other texts for its distinct values; null for None."""
    texts = [normalize("NFC", value) for value in values if value is not None]
    position = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    number_of = [None if v is None else position[normalize("NFC", v)] for v in values]
    indices = pa.array(number_of, pa.int32()).take(array.indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(position), pa.string()))
