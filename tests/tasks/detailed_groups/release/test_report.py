"""The public report: its sections, and that it says nothing of the truth unless it may."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.checks.accuracy import write_accuracy
from spineflow.tasks.detailed_groups.measurement.charge import plan_of_run
from spineflow.tasks.detailed_groups.postprocess.run import postprocess, stages_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.release.files import write_run_release
from spineflow.tasks.detailed_groups.release.report import report
from spineflow.tasks.pages.document import Document, Figure, Table, to_markdown
from spineflow.tasks.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def finished(measured_groups, tmp_path_factory):
    run, settings = measured_groups("mechanism.coterminous=true")
    folder = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(run.root, folder)
    run = RunDirectory(folder)
    for region_pass in ("us", "pr"):
        for stage in stages_of(settings):
            postprocess(run, settings, region_pass, stage)
    write_run_release(run, settings)
    DETAILED_GROUPS.check_run(run, settings)
    return run, settings


def public_report(run, settings) -> Document:
    return report(run, settings, plan_of_run(run, settings), None)


def test_sections(finished) -> None:
    run, settings = finished
    document = public_report(run, settings)
    assert [section.title for section in document.sections] == [
        "What is guaranteed",
        "Margins of error",
        "Suppression",
        "Populations from which tables are accurate",
        "Groups at each table",
        "Coterminous regions",
        "What is exact",
        "Checks",
        "Seconds of work",
    ]
    figures = [
        block
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Figure)
    ]
    assert len(figures) == 3
    assert document.stamp.startswith("NOT PRIVATE")
    assert "in the order USA, STATE, COUNTY" in to_markdown(document)


def test_shares_of_a_level_add_up(finished) -> None:
    run, settings = finished
    sections = public_report(run, settings).sections
    section = next(one for one in sections if one.title == "Groups at each table")
    table = next(block for block in section.blocks if isinstance(block, Table))
    for row in table.rows:
        percent = [float(cell.removesuffix(" %")) for cell in row[3:]]
        assert sum(percent) == pytest.approx(100, abs=0.03)


def test_accuracy_is_shown_if_given(finished, tmp_path: Path) -> None:
    run, settings = finished
    write_accuracy(run, settings)
    path = DETAILED_GROUPS.report(run, settings)
    assert path == run.report
    assert "which is not confidential" in path.read_text()
    assert "Accuracy" not in [s.title for s in public_report(run, settings).sections]


def test_without_noise_there_are_no_margins(measured_groups, finished) -> None:
    run, _ = finished
    _, settings = measured_groups("privacy.infinite=true")
    titles = [section.title for section in public_report(run, settings).sections]
    assert "Margins of error" not in titles
    assert "Suppression" not in titles
