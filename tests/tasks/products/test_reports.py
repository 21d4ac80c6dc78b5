"""The front page of reports: what it says of checks and of time, whatever the product."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spineflow.tasks.ledger.plan import Measure, UniversePlan
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN
from spineflow.tasks.pages.document import Block, Document
from spineflow.tasks.products.plan import Plan, Statement
from spineflow.tasks.products.reports import report_document
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings import ProductSettings


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.write_manifest(
        {
            "run_id": "run-1",
            "created": "2020-04-01T00:00:00Z",
            "settings_digest": "s" * 64,
            "code_version": "c0de",
            "stages": {
                "ingest": {"seconds": 3.0},
                "persons measure County": {"seconds": 2.0},
                "units measure County": {"seconds": 4.0},
                "report": {"seconds": 99.0},
            },
        }
    )
    write_checks(run, True, True)
    return run


def write_checks(run: RunDirectory, *passed: bool) -> None:
    run.checks.mkdir(exist_ok=True)
    checks = [
        {"universe": "persons", "name": f"check_{n}", "passed": ok, "detail": "words"}
        for n, ok in enumerate(passed)
    ]
    (run.checks / "checks.json").write_text(json.dumps({"checks": checks}))


class Settings(ProductSettings):
    PRODUCT = "trips"


def document(run: RunDirectory, counts: tuple[Block, ...] = ()) -> Document:
    settings = Settings.model_validate(
        {"privacy": {"dataset": "somewhere", "ledger": "l.db"}, "input": {}}
    )
    measured = UniversePlan("persons", DISCRETE_GAUSSIAN, None, None, (Measure("a", None),))
    plan = Plan("trips", "somewhere", (measured,), Statement("there is no noise", (), (), ()), ())
    return report_document(run, settings, plan, counts=counts)


def test_the_verdict_counts_the_checks(run: RunDirectory) -> None:
    front = document(run).front
    assert front is not None and front.is_good
    assert front.verdict == "Released: all 2 independent checks of the result passed."
    write_checks(run, True, False, True)
    front = document(run).front
    assert front is not None and not front.is_good
    assert front.verdict == "Withheld: 1 of 3 independent checks failed."
