"""Files of public areas: their rows (level, area, parent)."""

from __future__ import annotations

import pandas as pd

from .columns import CodedColumn
from .layouts import Field, Kind, TableLayout
from .readers import read_under_names
from .sources import InputFile

_OTHER_NAME = {"area": "region", "region": "area"}


def areas_file(table: str, path: str, name: str) -> InputFile:
    """The input file of areas under a key of the settings."""
    kinds: dict[str, Kind] = dict.fromkeys(("level", "area", "region", "parent"), "text")
    return InputFile(table, path, name, TableLayout.expected(table, kinds))


def read_area_rows(file: InputFile, area: str) -> pd.DataFrame:
    """The columns level, `area` and parent as texts without surrounding blanks, "" where blank.

    `area` is "area" or "region", and the column may have either name. Raises UnreadableInput.
    """
    columns = ("level", area, "parent")
    batches = [
        {
            name: CodedColumn.from_arrow(batch[name], Field(name, "text")).lookup(_text, object)
            for name in columns
        }
        for batch in read_under_names(file, columns, {area: _OTHER_NAME[area]})
    ]
    return pd.concat(map(pd.DataFrame, batches), ignore_index=True)


def _text(value: str | None) -> str:
    return value or ""
