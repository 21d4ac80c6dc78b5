"""Tables of declared censuses in several files: what one file of the same rows says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.tables import value_tallies
from spineflow.tasks.topdown.ingest.ingest import reading_of
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.flows.in_process import second_opinion
from tests.tasks.census.in_shares import checked_in_shares


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_tallies, "run_suites", second_opinion)


def frame_of(file: Path) -> pd.DataFrame:
    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def settings_of(folder: Path, text: str) -> TopdownSettings:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return TOPDOWN.load(file)


def cut(folder: Path, name: str) -> tuple[TopdownSettings, TopdownSettings]:
    """Settings of a declaration of the gallery, with its tables as they are, and with every table
    of records in four files."""
    text = whole = DECLARATIONS[list(GALLERY).index(name)]
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
    return settings_of(folder, whole), settings_of(folder, text)


@pytest.mark.parametrize("in_shares", [False, True])
@pytest.mark.parametrize("name", GALLERY)
def test_files_add_up_to_the_whole(name: str, in_shares: bool, tmp_path: Path) -> None:
    one, several = map(reading_of, cut(tmp_path, name))
    whole = one.check()
    parts = checked_in_shares(several, tmp_path) if in_shares else several.check()
    assert parts.outcomes == whole.outcomes
    one, other = whole.accepted(), parts.accepted()
    pd.testing.assert_frame_equal(other.geography, one.geography)
    pd.testing.assert_frame_equal(other.public, one.public)
    for universe, histogram in one.histograms.items():
        for array in ("indptr", "indices", "data"):
            wanted = getattr(histogram, array)
            np.testing.assert_array_equal(getattr(other.histograms[universe], array), wanted)
    assert other.digests(b"key") == one.digests(b"key")


BREAKS = {
    "register": ("persons", "sex", "X", "must have a level of the attribute sex"),
    "households": ("people", "household", "nobody", "household must be"),
    "homes": ("people", "sex", "X", "must have a level of the attribute sex"),
    "schools": ("pupils", "sex", "X", "must have a level of the attribute sex"),
}
"""By declaration a table, a column of it, a value that breaks a rule, and words of the rule."""


@pytest.mark.parametrize("name", GALLERY)
def test_a_broken_rule_names_the_first_file(name: str, tmp_path: Path) -> None:
    _, settings = cut(tmp_path, name)
    table, column, value, words = BREAKS[name]
    for number in (1, 2):
        file = tmp_path / table / f"{number}.parquet"
        frame = pd.read_parquet(file)
        frame[column] = frame[column].astype(object)
        frame.loc[frame.index[:3], column] = value
        frame[column] = frame[column].map(str)
        frame.to_parquet(file, index=False)
    findings = reading_of(settings).check().findings
    (found,) = [one for one in findings if words in one.rule][:1]
    assert (found.file, found.count) == ("1.parquet", 6)
    assert checked_in_shares(reading_of(settings), tmp_path).findings == findings


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    _, settings = cut(tmp_path, "register")
    for number in (1, 2):
        file = tmp_path / "persons" / f"{number}.parquet"
        file.write_bytes(file.read_bytes()[:-20])
    found = reading_of(settings).check().findings
    assert [finding.file for finding in found] == ["1.parquet"]


@pytest.mark.parametrize(
    ("name", "table"),
    [("register", "persons"), ("homes", "people"), ("households", "people"), ("schools", "pupils")],
)
def test_a_copy_in_another_form_is_refused(name: str, table: str, tmp_path: Path) -> None:
    _, settings = cut(tmp_path, name)
    part = pd.read_parquet(tmp_path / table / "1.parquet").sample(frac=1, random_state=0)
    part.to_csv(tmp_path / table / "copy.csv", index=False)
    findings = reading_of(settings).check().findings
    assert checked_in_shares(reading_of(settings), tmp_path).findings == findings
    (found,) = [one for one in findings if "holds the rows" in one.rule]
    assert (found.file, found.rule) == ("copy.csv", "the file holds the rows of 1.parquet")
