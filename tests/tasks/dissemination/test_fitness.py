"""Verdicts on released counts, from their margins."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from spineflow.tasks.dissemination.released_tables import fitness


def write(folder: Path, name: str, rows: pd.DataFrame, margins: pd.DataFrame) -> None:
    (folder / "tables").mkdir(exist_ok=True)
    rows.to_parquet(folder / "tables" / f"{name}.parquet")
    margins.to_parquet(folder / "tables" / f"{name}_margins.parquet")


def verdicts(folder: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """The share of reliable counts and the verdict by table and level."""
    found = fitness(folder)
    assert found is not None
    reliable, verdict = (found.levels.headers.index(name) for name in ("reliable", "verdict"))
    return {(str(r[0]), str(r[1])): (str(r[reliable]), str(r[verdict])) for r in found.levels.rows}


def test_counts_of_declared_tables_by_level(tmp_path: Path) -> None:
    """Margins of 27 are reliable from a count of 100 on; a count of 0 has no proportion."""
    levels = ["region"] * 4 + ["village"] * 4 + ["house"] * 4
    counts = [100, 100, 5000, 0, 99, 100, 80, 300, 1, 2, 3, 4]
    areas = pd.DataFrame({"level": levels, "code": [str(i) for i in range(12)]})
    published = areas.assign(count=counts)
    bounds = areas.assign(lower=[n - 27 for n in counts], upper=[n + 27 for n in counts])
    write(tmp_path, "people", published, bounds)
    assert verdicts(tmp_path) == {
        ("people", "region"): ("100%", "use"),
        ("people", "village"): ("50%", "use counts of 100 and more"),
        ("people", "house"): ("0%", "add up to 100 and more first"),
    }
    found = fitness(tmp_path)
    assert found is not None and "house, 9 has a published count of 2;" in found.example
    assert "between -25 and 29" in found.example


def test_totals_and_cells_of_summary_levels(tmp_path: Path) -> None:
    published = pd.DataFrame(
        {"SUMLEV": ["140"] * 2, "GEOCODE": ["1", "2"], "P0010001": [900, 1100], "P0010002": [5, 8]}
    )
    bounds = published[["SUMLEV", "GEOCODE"]].assign(
        P0010001_LOWER=[890, 1090], P0010001_UPPER=[910, 1110], P0010002_LOWER=0, P0010002_UPPER=20
    )
    write(tmp_path, "140_tract", published, bounds)
    assert verdicts(tmp_path) == {
        ("P1: total", "tract"): ("100%", "use"),
        ("P1: other cells", "tract"): ("0%", "add up to 38 and more first"),
    }
