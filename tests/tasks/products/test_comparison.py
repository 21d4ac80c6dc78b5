"""Runs side by side: every figure beside its counterpart, whatever order the runs have them in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from spineflow.tasks.pages.document import Table
from spineflow.tasks.products.comparison import (
    ComparedRun,
    comparison_document,
    labels_of,
    require_errors,
    write_comparison,
    write_links,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused


def compared(folder: Path, errors: dict[str, list], *, confidential: bool = False) -> ComparedRun:
    settings = SimpleNamespace(
        PRODUCT="trips", stamp=None, input=SimpleNamespace(confidential=confidential)
    )
    return ComparedRun(RunDirectory(folder), settings, {"loss": folder.name}, pd.DataFrame(errors))


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
        require_errors(RunDirectory(tmp_path), None)


def test_errors_that_are_there_are_taken(tmp_path: Path) -> None:
    errors = pd.DataFrame({"level": [1]})
    assert require_errors(RunDirectory(tmp_path), errors) is errors


def test_comparisons_of_several_products_are_linked_from_a_confidential_page(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    pages = {"trips": tmp_path / "run/trips/confidential/page.html", "topdown": tmp_path / "b.html"}
    path = write_links(run, pages, stamp="NOT PRIVATE")
    assert path.parent == run.confidential
    assert run.confidential.stat().st_mode & 0o077 == 0
    text = path.read_text(encoding="utf-8")
    assert 'href="../trips/confidential/page.html"' in text and 'href="../../b.html"' in text
    assert ">trips<" in text and "NOT PRIVATE" in text
    assert "NOT PRIVATE" not in write_links(run, pages, stamp=None).read_text(encoding="utf-8")
