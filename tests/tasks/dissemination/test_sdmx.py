"""Tables as SDMX: sdmx1, which shares no code with what wrote the data, reads the same counts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import sdmx
from spineflow.tasks.dissemination.formats import write_sdmx

DECLARED = pd.DataFrame(
    {
        "level": ["town"] * 4,
        "code": ["N 1", "N 1", "N/1", "N/1"],
        "name": ["North", "North", "South", "South"],
        "marital": ["never married", "married"] * 2,
        "count": pd.array([3, 0, None, 12], dtype="Int64"),
    }
)
WIDE = pd.DataFrame(
    {
        "SUMLEV": ["050", "050"],
        "GEOID": ["0500000US01", "0500000US02"],
        "GEOCODE": ["01", "02"],
        "P0010001": [10, 20],
        "P0010002": [4, 5],
    }
)


def release(folder: Path, name: str, table: pd.DataFrame, margins: pd.DataFrame | None) -> Path:
    tables = folder / "tables"
    tables.mkdir()
    table.to_parquet(tables / f"{name}.parquet", index=False)
    if margins is not None:
        margins.to_parquet(tables / f"{name}_margins.parquet", index=False)
    return folder


def as_read(folder: Path) -> pd.DataFrame:
    """The only table of a release, as sdmx1 reads it by its structure."""
    structure, data = write_sdmx(folder, "RUR")
    flow = sdmx.read_sdmx(structure).dataflow[data.stem]
    return sdmx.to_pandas(sdmx.read_sdmx(data, structure=flow), attributes="o")


def test_a_declared_table_is_read_back_with_margins_and_what_is_suppressed(tmp_path: Path) -> None:
    margins = DECLARED.assign(lower=[1, 0, 0, 10], upper=[5, 2, 9, 14]).drop(columns="count")
    read = as_read(release(tmp_path, "marital", DECLARED, margins)).reset_index()
    assert list(read["CODE"]) == ["N_1", "N_1", "N_1_2", "N_1_2"]
    assert list(read["MARITAL"]) == ["NEVER_MARRIED", "MARRIED"] * 2
    assert [None if pd.isna(value) else int(value) for value in read["value"]] == [3, 0, None, 12]
    assert list(read["OBS_STATUS"]) == ["A", "A", "Q", "A"]
    assert [int(value) for value in read["UPPER"]] == [5, 2, 9, 14]


def test_variables_of_summary_levels_are_a_dimension(tmp_path: Path) -> None:
    bounds = {f"{name}_{end}": WIDE[name] + shift for name in ("P0010001", "P0010002")
              for end, shift in (("LOWER", -1), ("UPPER", 1))}  # fmt: skip
    margins = WIDE[["SUMLEV", "GEOID", "GEOCODE"]].assign(**bounds)
    read = as_read(release(tmp_path, "050_county", WIDE, margins))
    expected = {("050", "01", "P0010001"): 10, ("050", "01", "P0010002"): 4,
                ("050", "02", "P0010001"): 20, ("050", "02", "P0010002"): 5}  # fmt: skip
    assert {key: int(value) for key, value in read["value"].items()} == expected
    assert (read["LOWER"].astype(int) == read["value"] - 1).all()


def test_files_that_protect_nobody_say_so_in_every_observation(tmp_path: Path) -> None:
    folder = release(tmp_path, "marital", DECLARED, None)
    path = folder / "tables" / "marital.parquet"
    stamped = pq.read_table(path).replace_schema_metadata({"spineflow": "NOT PRIVATE"})
    pq.write_table(stamped, path)
    assert set(as_read(folder)["COMMENT_OBS"]) == {"NOT PRIVATE"}
