"""Persons counted in parts: what `check_inputs` finds of the same files, byte for byte."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from spineflow.tasks.census import histograms, partitions
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.census.cef_tables import CefTables, IngestResult, check_inputs, table_files
from spineflow.tasks.census.histograms import joined, write_histogram
from spineflow.tasks.census.partitions import (
    check_parts,
    count_part,
    is_kept,
    keep_before,
    parts_of,
)
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.topdown.ingest.generate import generate_county

from tests.tasks.census.conftest import Tables, assert_same


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    """A county whose persons and units lie in five files each, persons of a block in several."""
    county = generate_county(tmp_path / "county", persons=700, seed=3)
    found = {"geography": str(county.geography)}
    rng = np.random.default_rng(3)
    for table, file in (("persons", county.persons), ("units", county.units)):
        frame = pd.read_parquet(file)
        of_row = rng.integers(0, 4, len(frame))
        for number in range(5):
            part = tmp_path / table / f"{number}.parquet"
            part.parent.mkdir(exist_ok=True)
            frame[of_row == number].to_parquet(part, index=False)
        found[table] = str(tmp_path / table)
    return found


def reading(paths: dict[str, str]) -> CefTables:
    return CefTables(table_files(paths, {}), PERSONS, UNITS)


def in_parts(paths: dict[str, str], folder: Path) -> InputCheck[IngestResult]:
    tables = reading(paths)
    folder.mkdir(exist_ok=True)
    keep_before(folder, tables)
    for number in reversed(range(len(parts_of(tables)))):
        count_part(folder, tables, number)
    found = check_parts(folder, tables)
    assert found is not None
    return found


def edit(paths: dict[str, str], table: str, number: int, column: str, value: object) -> None:
    file = Path(paths[table]) / f"{number}.parquet"
    frame = pd.read_parquet(file)
    frame[column] = frame[column].astype(object)
    frame.loc[frame.index[1:3], column] = value
    frame[column] = frame[column].map(str)
    frame.to_parquet(file, index=False)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 64])
def test_parts_add_up_to_the_whole(
    most: int, paths: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MOST_PARTS", most)
    checks = check_inputs(**paths), in_parts(paths, tmp_path / "kept")
    assert checks[0].outcomes == checks[1].outcomes
    whole, parts = (check.accepted() for check in checks)
    pd.testing.assert_frame_equal(parts.geography, whole.geography)
    pd.testing.assert_frame_equal(parts.invariants, whole.invariants)
    assert parts.state_totals == whole.state_totals
    assert parts.digests(b"key") == whole.digests(b"key")
    for name in ("unit_block", "unit_population"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    for universe, histogram in whole.histograms.items():
        for name in ("indptr", "indices", "data"):
            found, wanted = getattr(parts.histograms[universe], name), getattr(histogram, name)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_rules_across_parts_find_what_they_find_of_the_whole(
    paths: dict[str, str], tmp_path: Path
) -> None:
    edit(paths, "persons", 1, "MAFID", "999999999")
    edit(paths, "persons", 3, "MAFID", " ")
    edit(paths, "persons", 2, "CENRACE", "64")
    edit(paths, "persons", 3, "CENRACE", "64")
    first = str(pd.read_parquet(Path(paths["units"]) / "0.parquet")["MAFID"].iloc[0])
    edit(paths, "units", 2, "MAFID", first)
    whole, parts = check_inputs(**paths), in_parts(paths, tmp_path / "kept")
    assert len(whole.findings) >= 4
    assert parts == whole


@pytest.mark.parametrize("table", ["persons", "units"])
def test_a_damaged_file_is_told_as_of_the_whole(
    table: str, paths: dict[str, str], tmp_path: Path
) -> None:
    for number in (1, 3):
        file = Path(paths[table]) / f"{number}.parquet"
        file.write_bytes(file.read_bytes()[:-20])
    whole, parts = check_inputs(**paths), in_parts(paths, tmp_path / "kept")
    assert [finding.file for finding in whole.findings] == ["1.parquet"]
    assert parts == whole


def test_persons_without_rows_are_no_table(paths: dict[str, str], tmp_path: Path) -> None:
    for number in range(5):
        file = Path(paths["persons"]) / f"{number}.parquet"
        pd.read_parquet(file).iloc[:0].to_parquet(file, index=False)
    whole, parts = check_inputs(**paths), in_parts(paths, tmp_path / "kept")
    assert "none of its files holds a row" in whole.findings[0].rule
    assert parts == whole


def test_missing_parts_are_left_to_the_whole(paths: dict[str, str], tmp_path: Path) -> None:
    tables = reading(paths)
    folder = tmp_path / "kept"
    folder.mkdir()
    count_part(folder, tables, 0)
    assert check_parts(folder, tables) is None and not is_kept(folder, 0)
    keep_before(folder, tables)
    count_part(folder, tables, 0)
    assert is_kept(folder, 0) and check_parts(folder, tables) is None


def test_identifiers_may_be_texts(paths: dict[str, str], tmp_path: Path) -> None:
    for table in ("persons", "units"):
        for file in Path(paths[table]).glob("*.parquet"):
            frame = pd.read_parquet(file)
            frame["MAFID"] = "A" + frame["MAFID"].astype(str).str.strip()
            frame.to_parquet(file, index=False)
    checks = check_inputs(**paths), in_parts(paths, tmp_path / "kept")
    assert checks[0].outcomes == checks[1].outcomes
    whole, parts = (check.accepted() for check in checks)
    assert parts.digests(b"key") == whole.digests(b"key")


@pytest.mark.parametrize("apart", [True, False])
def test_joined_histograms_are_sums(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "_FEWEST_HELD", 7)
    rng = np.random.default_rng(4)
    parts, dense = [], np.zeros((30, 5), dtype=np.int64)
    for first in (20, 0, 10):
        width = 10 if apart else 15
        last = min(first + width, 30)
        own = rng.poisson(0.3, (last - first, 5))
        own[0] = 0
        held = sparse.csr_array(own)
        parts.append((first, held.indptr.astype(np.int64), held.indices, held.data))
        dense[first:last] += own
    parts.append((0, np.zeros(1, dtype=np.int64), np.empty(0, np.int32), np.empty(0, np.int64)))
    total = joined(parts, 30, 5)
    np.testing.assert_array_equal(total.toarray(), dense)
    assert total.has_canonical_format and (total.data > 0).all()
    assert (total.data.dtype, total.indices.dtype) == (np.int64, np.int32)
    assert joined([], 3, 2).nnz == 0


class Code:
    """What runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return Path.touch, (self.file,)


def test_a_folder_from_elsewhere_runs_no_code(paths: dict[str, str], tmp_path: Path) -> None:
    """Whatever lies under the names of what is kept; that of earlier versions is read anew.

    Threat model: code in a run directory from elsewhere.
    """
    tables, folder, sign = (
        reading(paths),
        tmp_path / "kept",
        tmp_path / "ran",
    )
    wanted = in_parts(paths, folder).outcomes
    kept = [path for path in folder.rglob("*") if path.suffix != ".parquet" and path.is_file()]
    assert kept
    for path in kept:
        for place in (path, path.with_suffix(".pickle")):
            place.write_bytes(pickle.dumps(Code(sign)))
        for read in (lambda: check_parts(folder, tables), lambda: count_part(folder, tables, 0)):
            with suppress(ValueError):
                read()
    assert not sign.exists()
    for path in kept:
        path.unlink()
    assert not is_kept(folder)
    assert check_parts(folder, tables) is None
    assert in_parts(paths, folder).outcomes == wanted
    description = folder / "before.json"
    description.write_text(description.read_text().replace("<i8", "|O"))
    with pytest.raises(TypeError):
        check_parts(folder, tables)
    assert not sign.exists()


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
    result = check_inputs(**write_partitions(tables, seed)).accepted()
    assert_same(result, expected)
    assert result.digests(b"key") == expected.digests(b"key")
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
    findings = {finding.rule: finding.file for finding in check_inputs(**paths).findings}
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
