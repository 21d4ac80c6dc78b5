"""`spineflow report` with one run and with several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spineflow.flows.cli import main


@pytest.fixture(scope="module")
def finished(county: Path, tmp_path_factory, estimated_run):
    """Two runs with an empty release, which is all that the command looks for."""
    runs = []
    for name, spine in (("one", "optimized"), ("two", "conventional")):
        run, _ = estimated_run(
            tmp_path_factory.mktemp(name),
            county,
            seed=7,
            overrides=[f"geography.spine={spine}"],
            name=name,
        )
        run.release.mkdir()
        runs.append(run)
    return runs


@pytest.mark.soak(3)
def test_several_runs_are_compared_in_confidence(finished, capsys) -> None:
    one, two = finished
    assert main(["report", str(one.root), str(two.root)]) == 0
    path = one.confidential / "accuracy" / "comparison.html"
    assert capsys.readouterr().out == f"comparison: {path}\n"
    text = path.read_text()
    assert "CONFIDENTIAL" in text and "<td>one</td>" in text and "<td>two</td>" in text
    assert not one.report.parent.exists() and not two.report.parent.exists()


def test_unfinished_runs_and_other_products_are_refused(finished, capsys) -> None:
    one, two = finished
    two.release.rmdir()
    assert main(["report", str(one.root), str(two.root)]) == 2
    assert "has no release yet" in capsys.readouterr().err
    two.release.mkdir()
    manifest = json.loads(two.manifest.read_text())
    two.write_manifest({**manifest, "product": "no-such-product"})
    assert main(["report", str(one.root), str(two.root)]) == 2
    assert "no-such-product" in capsys.readouterr().err
