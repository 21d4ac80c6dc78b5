"""Records of declared censuses counted in parts: what the reading of the whole finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census import evidence, partitions
from spineflow.tasks.census.declared_input import DeclaredInput, DeclaredTables
from spineflow.tasks.census.partitions import (
    check_parts,
    check_whole,
    count_part,
    keep_before,
    parts_of,
)
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.topdown.ingest.ingest import reading_of
from spineflow.tasks.topdown.product import TOPDOWN

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.flows.in_process import second_opinion


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "run_suites", second_opinion)


def frame_of(file: Path) -> pd.DataFrame:
    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def cut(folder: Path, name: str) -> DeclaredTables:
    """The tables of a declaration of the gallery, every table of records in four files."""
    text = DECLARATIONS[list(GALLERY).index(name)]
    GALLERY[name](folder)
    rng = np.random.default_rng(6)
    for table, file in re.findall(r'^(\w+) = "(\w+\.(?:csv|parquet))"', text, re.MULTILINE):
        if table == "areas":
            continue
        frame = frame_of(folder / file)
        of_row = rng.integers(0, 3, len(frame))
        (folder / table).mkdir()
        for number in range(4):
            part = folder / table / f"{number}.parquet"
            frame[of_row == number].to_parquet(part, index=False)
        text = text.replace(f'{table} = "{file}"', f'{table} = "{table}"')
    settings_file = folder / "settings.toml"
    settings_file.write_text(text, encoding="utf-8")
    found = reading_of(TOPDOWN.load(settings_file))
    assert isinstance(found, DeclaredTables)
    return found


def in_parts(tables: DeclaredTables, folder: Path) -> InputCheck[DeclaredInput]:
    folder.mkdir()
    keep_before(folder, tables)
    for number in reversed(range(len(parts_of(tables)))):
        count_part(folder, tables, number)
    found = check_parts(folder, tables)
    assert found is not None
    return found


def digests(result: DeclaredInput) -> dict[str, InputDigest]:
    return result.digests(b"key")


@pytest.mark.parametrize("most", [2, 64])
@pytest.mark.parametrize("name", GALLERY)
def test_parts_add_up_to_the_whole(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MOST_PARTS", most)
    tables = cut(tmp_path, name)
    whole, parts = check_whole(tables), in_parts(tables, tmp_path / "kept")
    assert (parts.outcomes, parts.files) == (whole.outcomes, whole.files)
    one, other = whole.accepted(), parts.accepted()
    pd.testing.assert_frame_equal(other.areas.frame, one.areas.frame)
    assert other.histograms.keys() == one.histograms.keys()
    for universe, histogram in one.histograms.items():
        for array in ("indptr", "indices", "data"):
            wanted = getattr(histogram, array)
            np.testing.assert_array_equal(getattr(other.histograms[universe], array), wanted)
    assert other.multiples.keys() == one.multiples.keys()
    for key, values in one.multiples.items():
        np.testing.assert_array_equal(other.multiples[key], values)
    assert repr(other.totals) == repr(one.totals)
    assert digests(other) == digests(one)


BREAKS = {
    "register": ("persons", "sex", "X", "must have a level of the attribute sex"),
    "households": ("people", "household", "nobody", "household must be"),
    "homes": ("people", "sex", "X", "must have a level of the attribute sex"),
    "schools": ("pupils", "sex", "X", "must have a level of the attribute sex"),
}
"""By declaration a table, a column of it, a value that breaks a rule, and words of the rule."""


@pytest.mark.parametrize("name", GALLERY)
def test_rules_find_what_they_find_of_the_whole(name: str, tmp_path: Path) -> None:
    tables = cut(tmp_path, name)
    table, column, value, words = BREAKS[name]
    for number in (1, 2):
        file = tmp_path / table / f"{number}.parquet"
        frame = pd.read_parquet(file)
        frame[column] = frame[column].astype(object)
        frame.loc[frame.index[:3], column] = value
        frame[column] = frame[column].map(str)
        frame.to_parquet(file, index=False)
    whole, parts = check_whole(tables), in_parts(tables, tmp_path / "kept")
    (found,) = [one for one in whole.findings if words in one.rule][:1]
    assert (found.file, found.count) == ("1.parquet", 6)
    assert parts == whole


def test_a_damaged_file_is_told_as_of_the_whole(tmp_path: Path) -> None:
    tables = cut(tmp_path, "register")
    for number in (1, 2):
        file = tmp_path / "persons" / f"{number}.parquet"
        file.write_bytes(file.read_bytes()[:-20])
    whole, parts = check_whole(tables), in_parts(tables, tmp_path / "kept")
    assert [finding.file for finding in whole.findings] == ["1.parquet"]
    assert (parts.findings, parts.outcomes) == (whole.findings, whole.outcomes)


@pytest.mark.parametrize(
    ("name", "table"),
    [("register", "persons"), ("homes", "people"), ("households", "people"), ("schools", "pupils")],
)
def test_a_copy_in_another_form_is_refused(name: str, table: str, tmp_path: Path) -> None:
    cut(tmp_path, name)
    part = pd.read_parquet(tmp_path / table / "1.parquet").sample(frac=1, random_state=0)
    part.to_csv(tmp_path / table / "copy.csv", index=False)
    tables = reading_of(TOPDOWN.load(tmp_path / "settings.toml"))
    whole, parts = check_whole(tables), in_parts(tables, tmp_path / "kept")
    (found,) = [one for one in whole.findings if "holds the rows" in one.rule]
    assert (found.file, found.rule) == ("copy.csv", "the file holds the rows of 1.parquet")
    assert parts == whole
