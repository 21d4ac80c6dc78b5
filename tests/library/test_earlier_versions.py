"""Runs and ledgers of versions 0.2 and 0.3 are read, reported and added up.

`earlier/VERSION.tar.xz` is a redistricting run of a generated county of 400 persons or so, with its
ledger, by that version, without its confidential folder and its pages.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import spineflow
from spineflow.flows.cli import main

EARLIER = Path(__file__).parent / "earlier"
RHO = 2.5562 + 0.0749
"""Spent on persons and units, as those versions said."""


@pytest.fixture(params=["0.2", "0.3"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a run and a ledger of an earlier version."""
    with tarfile.open(EARLIER / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_an_earlier_run_is_read_reported_and_has_intervals(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spineflow.open_run(office / "run")
    assert (run.product, run.status, run.is_private) == ("topdown", "complete", True)
    people = run.microdata("persons")
    assert run.estimates("State")["count"].sum() == len(people) > 0
    measured = run.measurements("Block_Group of the spine", query="total")
    intervals = run.make_intervals("total", "Block_Group of the spine")
    assert intervals["geocode"].tolist() == measured["geocode"].tolist()
    assert (intervals["lower"] <= intervals["upper"]).all()
    assert main(["report", str(office / "run")]) == 0, capsys.readouterr().err
    assert (office / "run" / "report" / "report.html").exists()


def test_an_earlier_ledger_adds_up(office: Path) -> None:
    (spent,) = spineflow.ledger(office / "ledger.db").itertuples()
    assert (spent.dataset, spent.cap) == ("people", 100)
    assert spent.rho == pytest.approx(RHO, abs=1e-4)
    assert spent.exact_epsilon < spent.epsilon
