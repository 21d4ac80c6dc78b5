"""Tables in several files: what one file of the same rows says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.cef_tables import CefTables
from spineflow.tasks.census.histograms import write_histogram

from tests.census_inputs import check_inputs
from tests.tasks.census.conftest import Tables, assert_same
from tests.tasks.census.in_shares import checked_in_shares


def write_partitions(tables: Tables, seed: int) -> dict[str, str]:
    """Every table cut into five files at random, of several formats, one of them without rows."""
    rng = np.random.default_rng(seed)
    paths = {}
    for table in ("persons", "units", "geography"):
        frame = getattr(tables, table)
        of_row = rng.choice([0, 1, 3, 4], len(frame), p=[0.1, 0.2, 0.3, 0.4])
        folder = tables.directory / table
        for part in range(5):
            rows = frame[of_row == part]
            (folder / f"state={part}").mkdir(parents=True)
            if part == 4:
                rows.to_csv(folder / f"state={part}" / "part.csv", index=False)
            else:
                rows.to_parquet(folder / f"state={part}" / "part.parquet", index=False)
        (folder / "_SUCCESS").touch()
        paths[table] = str(folder)
    paths["units"] += "/*/part.*"
    return paths


@pytest.mark.usefixtures("rules_only")
@pytest.mark.parametrize("seed", [0, 1])
def test_partitioning_does_not_matter(seed, tables, expected, tmp_path):
    paths = write_partitions(tables, seed)
    result = check_inputs(**paths).accepted()
    assert_same(result, expected)
    assert result.digests(b"key") == expected.digests(b"key")
    read = CefTables.of(CENSUS, {"persons": PERSONS, "units": UNITS}, paths)
    in_shares = checked_in_shares(read, tmp_path).accepted()
    assert_same(in_shares, expected)
    assert in_shares.digests(b"key") == expected.digests(b"key")
    written = []
    for number, each in enumerate((result, expected)):
        for universe, histogram in each.histograms.items():
            path = tmp_path / f"{universe} {number}"
            write_histogram(path, histogram, each.geography["block_geocode"].to_numpy())
            written.append(path.read_bytes())
    assert written[:2] == written[2:]


@pytest.mark.usefixtures("rules_only")
def test_refusals_name_the_partition(tables):
    rows = np.flatnonzero(tables.persons["QGQTYP"] == "   ")
    tables.persons["CENRACE"] = tables.persons["CENRACE"].astype(str)
    tables.persons.iloc[rows[1::2], tables.persons.columns.get_loc("CENRACE")] = "64"
    paths = write_partitions(tables, 0)
    for part in (0, 1):
        path = Path(paths["persons"]) / f"state={part}" / "part.parquet"
        frame = pd.read_parquet(path)
        frame.loc[frame["CENRACE"] == "64", "CENRACE"] = "01"
        frame.to_parquet(path, index=False)
    first, last = (Path(paths["units"][:-9]) / f"state={part}" / "part.parquet" for part in (1, 3))
    units = pd.read_parquet(last)
    units.loc[units.index[0], "MAFID"] = pd.read_parquet(first)["MAFID"].iloc[0]
    units.to_parquet(last, index=False)
    found = check_inputs(**paths).findings
    read = CefTables.of(CENSUS, {"persons": PERSONS, "units": UNITS}, paths)
    assert checked_in_shares(read, tables.directory).findings == found
    findings = {finding.rule: finding.file for finding in found}
    assert findings["CENRACE must be a code from 01 to 63 in every row"] == "state=3/part.parquet"
    assert findings["MAFID must be different in every row"] == "state=1/part.parquet"

    last.write_bytes(last.read_bytes()[:-20])
    [finding] = check_inputs(**paths).findings
    assert (finding.file, finding.rule) == (
        "state=3/part.parquet",
        "the Parquet file is truncated or damaged",
    )
    blocks = tables.directory / "geography" / "state=4" / "part.csv"
    pd.read_csv(blocks, dtype=str).assign(district="1").to_csv(blocks, index=False)
    [finding] = check_inputs(**paths).findings
    assert (finding.file, finding.column) == ("state=4/part.csv", "district")


@pytest.mark.usefixtures("rules_only")
def test_partitions_without_rows_are_no_table(tables):
    tables.persons = tables.persons[:0]
    paths = write_partitions(tables, 0)
    [finding] = check_inputs(**paths).findings
    assert finding.rule == "none of its files holds a row"
    read = CefTables.of(CENSUS, {"persons": PERSONS, "units": UNITS}, paths)
    assert checked_in_shares(read, tables.directory).findings == (finding,)
