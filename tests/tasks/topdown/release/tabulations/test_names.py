"""Names and points of entities: those of the geography, those of a published release, means."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.topdown.release.tabulations.legacy import header_columns
from spineflow.tasks.topdown.release.tabulations.levels import (
    OWN_FIELDS,
    POINT,
    SUMMARY_LEVELS,
    entities_of,
    named_columns,
)
from spineflow.tasks.topdown.release.tabulations.published import published_blocks, read_published


def geography(**further: list[str]) -> pd.DataFrame:
    """Four blocks in two tracts of a county, the last two of them in a place."""
    return pd.DataFrame(
        {
            "block_geocode": [f"44007000{tract}001000{n}" for tract, n in ("11", "12", "21", "22")],
            "AIANNHCE": ["9999"] * 4,
            "COUSUBFP": ["00001"] * 4,
            "PLACEFP": ["99999", "99999", "12345", "12345"],
            **further,
        }
    )


def header(frame: pd.DataFrame, level: str) -> dict[str, list[str]]:
    columns = header_columns(entities_of(frame, SUMMARY_LEVELS[level]))
    return {name: column.to_pylist() for name, column in columns.items()}


def test_entities_are_called_what_the_geography_calls_them() -> None:
    frame = geography(
        COUNTY_NAME=["Providence County"] * 4,
        COUNTY_LSADC=["06"] * 4,
        COUNTYNS=["01219781"] * 4,
        PLACE_NAME=["", "", "East Side, upper", "East Side, upper"],
    )
    county, place, tract = (header(frame, level) for level in ("050", "160", "140"))
    assert county["NAME"] == ["Providence County"] and county["LSADC"] == ["06"]
    assert county["BASENAME"] == ["007"], "what is not told goes by its code"
    assert place["NAME"] == ["East Side, upper"]
    assert tract["COUNTYNS"] == ["01219781"] * 2
    assert tract["NAME"][0].startswith("Census Tract ")


@pytest.fixture(scope="module")
def published(shared: Path):
    return read_published(shared / "data" / "pl94171_2018_prototype")


@pytest.mark.parametrize("level", ["040", "050", "140", "150", "750"])
def test_a_published_header_is_written_as_it_was(published, level: str) -> None:
    """Names, legal descriptions, codes and points of every record, from the blocks' geography."""
    frame = published_blocks(published).geography
    ours = header(frame, level)
    rows = published.header[published.header["SUMLEV"] == level].sort_values("GEOCODE")
    assert ours["GEOCODE"] == rows["GEOCODE"].tolist()
    for field in OWN_FIELDS:
        assert ours[field] == rows[field].tolist(), field
    codes = [name for name in ("COUNTYCC", "COUNTYNS") if level != "040"]
    for field in codes:
        assert ours[field] == rows[field].tolist()
    named = named_columns(entities_of(frame, SUMMARY_LEVELS[level]))
    assert set(POINT) <= set(named)
