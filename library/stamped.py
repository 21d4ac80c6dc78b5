"""Tables of a release as data frames, whether they are stamped `NOT PRIVATE` or not.

A text file of a run that is not private begins with the line `# NOT PRIVATE`, before the header,
after which a download of a page gives the reason; a Parquet file has the stamp in its metadata.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import NOT_PRIVATE, STAMP_KEY

DELIMITERS = ("|", ",", "\t")
CODES = ("_ID", "_CODE", "_TYPE")
"""Endings of the names of columns of codes, in files without a Parquet copy."""

PRIVACY = "privacy"
"""Attribute of a frame (`frame.attrs`) with its privacy status."""


def read_table(path: str | Path) -> pd.DataFrame:
    """A table that a run has written, `.parquet` or `.csv`, as a data frame.

    The delimiter of a text file is detected, and its stamp is no row. Its columns have the types of
    its Parquet copy; without one, codes are text, with leading zeros, and other columns are numbers
    where possible. `frame.attrs["privacy"]` is `"NOT PRIVATE"` for a stamped
    file, else `"private"`.

    Raises SpineflowError for a missing file, or one that is no such table.

    Example: `spineflow.read_table("run/release/mdf_persons.csv")`.
    """
    file = Path(path)
    try:
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            is_stamped = (table.schema.metadata or {}).get(STAMP_KEY.encode()) is not None
            frame = table.replace_schema_metadata().to_pandas()
        else:
            frame, is_stamped = _read_text(file)
    except FileNotFoundError:
        raise InputRefused(f"{file}: there is no such file; check the path.") from None
    except (ValueError, OSError):
        raise InputRefused(
            f"{file}: this is no table of a release; name a .csv or .parquet file of one."
        ) from None
    frame.attrs[PRIVACY] = NOT_PRIVATE if is_stamped else "private"
    return frame


def _read_text(file: Path) -> tuple[pd.DataFrame, bool]:
    with file.open(encoding="utf-8", newline="") as lines:
        first = lines.readline().rstrip("\r\n")
        is_stamped = first.startswith(f"# {NOT_PRIVATE}")
        header = lines.readline().rstrip("\r\n") if is_stamped else first
    frame = pd.read_csv(
        file,
        sep=max(DELIMITERS, key=header.count),
        skiprows=int(is_stamped),
        dtype=str,
        keep_default_na=False,
    )
    sibling = file.with_suffix(".parquet")
    schema = pq.read_schema(sibling) if sibling.exists() else pa.schema([])
    types = {entry.name: entry.type for entry in schema}
    for name in frame.columns:
        if name in types:
            is_number = pa.types.is_integer(types[name]) or pa.types.is_floating(types[name])
        else:
            is_number = not name.upper().endswith(CODES) and _are_numbers(frame[name])
        if is_number:
            frame[name] = pd.to_numeric(frame[name].replace("", None))
    return frame, is_stamped


def _are_numbers(column: pd.Series) -> bool:
    """Whether a column has numbers alone, none of them with a leading zero, or is empty."""
    return bool(column.str.fullmatch(r"(-?(0|[1-9]\d*)(\.\d+)?)?").all())
