"""Tables of fixed width in a declared census: read as the same tables of delimited text."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.census_input import CensusInput
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables import value_tallies
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.product import TOPDOWN

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.flows.in_process import second_opinion

NAME = "households"
TEXT = DECLARATIONS[list(GALLERY).index(NAME)]


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_tallies, "run_suites", second_opinion)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tables of a declaration of the gallery, without accents."""
    GALLERY[NAME](tmp_path)
    for file in tmp_path.glob("*.csv"):
        letters = normalize("NFD", file.read_text(encoding="utf-8"))
        file.write_bytes(letters.encode("ascii", "ignore"))
    return tmp_path


def as_fixed_width(folder: Path, *, filler: int = 0) -> str:
    """Write every table anew with `filler` characters after each line; returns the settings."""
    text = TEXT
    for table, file in re.findall(r'^(\w+) = "(\w+\.csv)"', TEXT, re.MULTILINE):
        frame = pd.read_csv(folder / file, dtype=str, keep_default_na=False)
        places, start = [], 1
        lines = np.full(len(frame), "#", dtype=object)
        for name in frame:
            width = int(frame[name].str.len().max()) + 1
            lines = lines + frame[name].str.rjust(width).to_numpy(dtype=object)
            places.append(f'"{name}" = [{start}, {start + width}]')
            start += width
        (folder / file).write_text("".join(f"{line}{'#' * filler}\n" for line in lines))
        length = f"line_length = {start + filler}\n" if filler else ""
        text = f"[census.files.{table}]\ncolumns = {{ {', '.join(places)} }}\n{length}{text}"
    return text


def check(folder: Path, text: str) -> InputCheck[CensusInput]:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    found = check_input_of(TOPDOWN.load(file))
    assert isinstance(found.result, CensusInput | None)
    return found


@pytest.mark.parametrize("filler", [0, 3])
def test_fixed_width_is_read_as_delimited_text(filler: int, folder: Path) -> None:
    wanted = check(folder, TEXT).accepted()
    result = check(folder, as_fixed_width(folder, filler=filler)).accepted()
    pd.testing.assert_frame_equal(result.areas.frame, wanted.areas.frame)
    for universe, histogram in wanted.histograms.items():
        assert histogram.nnz and (result.histograms[universe] != histogram).nnz == 0


def test_a_line_of_another_length_is_refused(folder: Path) -> None:
    text = as_fixed_width(folder)
    file = folder / "people.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], lines[3] + "1", lines[4][:-1], *lines[5:]]))
    [finding] = check(folder, text).findings
    assert finding.count == 2 and "every line must have" in finding.rule
    assert "census.files.people.columns" in finding.remedy


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("people]\ncolumns = { age = [3, 3] }", "counted from 0"),
        ("people]\ncolumns = { age = [3, 9] }\nline_length = 8", "beyond the 8 characters"),
        ('people]\ncolumns = { age = [0, 3] }\nseparator = ";"', "separator does nothing"),
        ("people]\nline_length = 8", "does nothing without columns"),
        ("other]\ncolumns = { age = [0, 3] }", "a section of its own"),
        ("people]\ncolumns = {}", "columns"),
    ],
)
def test_places_that_cannot_be_are_refused(told: str, words: str, folder: Path) -> None:
    with pytest.raises(InputRefused, match=words):
        check(folder, f"[census.files.{told}\n{TEXT}")
