"""The accuracy report: who may see it, what it says, and how a browser shows it."""

from __future__ import annotations

import pytest
from spineflow.tasks.topdown.checks.accuracy.report import accuracy_report, write_run_accuracy
from spineflow.tasks.topdown.product import TOPDOWN

STAMP = "CONFIDENTIAL"


@pytest.fixture(scope="module")
def confidential_run(county, tmp_path_factory, estimated_run):
    return estimated_run(tmp_path_factory.mktemp("confidential"), county, seed=3, name="second")


def test_report_of_confidential_input_stays_confidential(confidential_run) -> None:
    run, settings = confidential_run
    before = {path for path in run.root.rglob("*") if run.confidential not in path.parents}
    path = write_run_accuracy(run, settings)
    assert path == accuracy_report(run)
    assert run.confidential in path.parents
    after = {path for path in run.root.rglob("*") if run.confidential not in path.parents}
    assert after == before
    assert STAMP in path.read_text()


def test_comparison_is_confidential_if_any_input_is(public_run, confidential_run) -> None:
    runs = [public_run, confidential_run]
    for run, settings in runs:
        write_run_accuracy(run, settings)
    path = TOPDOWN.write_comparison(runs)
    assert public_run[0].confidential in path.parents
    text = path.read_text()
    assert STAMP in text
    assert ">first</th>" in text and ">second</th>" in text
    assert not (public_run[0].report.parent / "comparison.html").exists()
