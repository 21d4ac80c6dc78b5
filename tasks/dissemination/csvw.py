"""Metadata of CSV on the Web (W3C) for the CSV tables of a release.

Every table is described with its keys, and every column with its type and meaning: that a count
is empty where it is suppressed, and which columns are the margin of which count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ..runs.files import write_record
from .released_tables import AREA_COLUMNS, ReleasedTable, released_tables

METADATA = "csv-metadata.json"
"""Where readers look for the metadata of a folder."""

CONTEXT = ["http://www.w3.org/ns/csvw", {"@language": "en"}]

MARGIN = "{} end of an interval that holds the true count with a probability of 90 %"

DESCRIPTIONS = {
    "level": "Kind of the area",
    "code": "Code of the area within its level",
    "name": "Name of the area",
    "count": "Released count, with noise; empty where it is suppressed, which never means 0",
    "lower": MARGIN.format("Lower"),
    "upper": MARGIN.format("Upper"),
}
"""By column of declared tables; `AREA_COLUMNS` maps columns of summary levels to them."""


def write_csvw(release: Path, labels: Mapping[str, str]) -> Path:
    """Write the metadata of all CSV tables of a release and of their margins.

    Args:
        release: The folder of the release, with its `tables`.
        labels: Labels of variables, by name.
    """
    tables = [own for table in released_tables(release) for own in _describe_table(table, labels)]
    path = release / "tables" / METADATA
    write_record(path, {"@context": CONTEXT, "tables": tables})
    return path


def _describe_table(table: ReleasedTable, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A table and its margins, which have the same keys."""
    keys = [_name(own) for own in table.dimensions]
    title = table.path.stem.replace("_", " ")
    for path, about in ((table.path, title), (table.margins, f"Margins of {title}")):
        if not path.exists():
            continue
        schema = pq.read_schema(path)
        described: dict[str, Any] = {
            "columns": [_column(table, field, labels) for field in schema],
            "primaryKey": keys,
        }
        if path != table.path:
            whole = {"resource": table.path.with_suffix(".csv").name, "columnReference": keys}
            described["foreignKeys"] = [{"columnReference": keys, "reference": whole}]
        yield {
            "url": path.with_suffix(".csv").name,
            "dc:title": about,
            **({"dc:description": table.stamp} if table.stamp else {}),
            "dialect": {"commentPrefix": "#", "encoding": "utf-8"},
            "tableSchema": described,
        }


def _column(table: ReleasedTable, field: pa.Field, labels: Mapping[str, str]) -> dict[str, Any]:
    """A column, whose empty fields are missing values."""
    name = field.name
    stem, _, end = name.rpartition("_")
    if name in table.counts and table.has_variables:
        about = f"{DESCRIPTIONS['count']}: {labels.get(name, name)}"
    elif stem in table.counts:
        about = f"{DESCRIPTIONS[end.lower()]}: {labels.get(stem, stem)}"
    else:
        own = AREA_COLUMNS.get(name, name)
        about = DESCRIPTIONS.get(own, own.replace("_", " "))
    kind = "string"
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        kind = "integer" if pa.types.is_integer(field.type) else "number"
    return {
        "name": _name(name),
        "titles": name,
        "datatype": kind,
        "dc:description": about,
        "null": "",
        "required": AREA_COLUMNS.get(name, name) in ("level", "code"),
    }


def _name(title: str) -> str:
    """A title as a name of CSVW, which has letters, digits and lines alone."""
    return quote(title, safe="").replace("-", "%2D").replace("~", "%7E")
