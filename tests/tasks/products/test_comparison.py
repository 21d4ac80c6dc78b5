"""Runs side by side: every figure beside its counterpart, whatever order the runs have them in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from spineflow.tasks.pages.document import Table
from spineflow.tasks.products.comparison import (
    Compared,
    comparison_document,
    errors_or_refused,
    labels_of,
    write_comparison,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused


def compared(folder: Path, errors: dict[str, list], *, confidential: bool = False) -> Compared:
    settings = SimpleNamespace(
        PRODUCT="trips", stamp=None, input=SimpleNamespace(confidential=confidential)
    )
    return Compared(RunDirectory(folder), settings, {"loss": folder.name}, pd.DataFrame(errors))


def test_figures_stand_beside_their_counterparts(tmp_path: Path) -> None:
    first = compared(tmp_path / "a", {"level": [1, 2], "error": [3.0, 4.5]})
    second = compared(tmp_path / "b", {"level": [3, 2], "error": [0.25, 1.0]})
    page = comparison_document([first, second], ["level"], {"error": "mean error"})
    about, errors = (section.blocks[0] for section in page.sections)
    assert isinstance(errors, Table)
    assert about.rows == (("loss", "a", "b"),)
    assert errors.headers == ("level", "a", "b")
    assert errors.rows == (("1", "3", ""), ("2", "4.5", "1"), ("3", "", "0.25"))


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [RunDirectory(tmp_path / name / "run") for name in ("a", "b")]
    assert labels_of(runs) == [str(run.root) for run in runs]


@pytest.mark.parametrize("confidential", [True, False])
def test_errors_of_confidential_input_stay_confidential(tmp_path: Path, confidential: bool) -> None:
    first = compared(tmp_path / "a", {"level": [1], "error": [1.0]})
    second = compared(tmp_path / "b", {"level": [1], "error": [2.0]}, confidential=confidential)
    for one in (first, second):
        one.run.confidential.mkdir(parents=True)
    path = write_comparison([first, second], ["level"], {"error": "error"})
    assert path.is_relative_to(first.run.confidential) == confidential
    assert first.run.report.parent.exists() != confidential


def test_a_run_without_its_errors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="leave it out"):
        errors_or_refused(RunDirectory(tmp_path), None)
