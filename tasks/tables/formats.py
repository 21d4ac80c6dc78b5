"""How the files of a table are written: separator, encoding, decimal mark, and what is a blank.

What settings leave open, the files show: the separator by their header, UTF-8 and UTF-16 by their
bytes, and a decimal comma goes with semicolons. Other encodings cannot be told from each other, so
that settings name them.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .cells import GridCells
from .columns import without_point

SEPARATORS = {"|": "pipes", ",": "commas", "\t": "tabs", ";": "semicolons"}
"""What may stand between the fields of a row, and its name in messages."""

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
"""Beginnings of what Python calls encodings, and no file is written in."""
_DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


@dataclass(frozen=True)
class TextFormat:
    """How the files of a table are written, as far as settings say.

    separator, decimal, encoding : None where the files show them.
    is_missing : whether a cell's text stands for a blank.
    missing : the texts that do, which is all that identifiers are compared with.
    numbers : columns that are read as numbers, whose decimal mark counts.
    digits : by column, the digits of its codes, which shorter numbers get by leading zeros.
    cells : by column that the files do not have, the grid whose cells it tells.
    key : dotted key under which settings say it, for remedies.
    places : of texts of fixed width, the first character of each column and the one after its last.
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
        """The decimal mark of numbers between such separators, or in Parquet if there are none."""
        return self.decimal or ("," if separator == ";" else ".")

    def value(self, text: str | None, is_number: bool, digits: int = 0) -> str | None:
        """The text of one cell, of whole numbers at least so many digits; None for a blank."""
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
