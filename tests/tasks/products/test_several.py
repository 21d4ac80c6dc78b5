"""The page and the index of several products: their checks, their time, and what all cost."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger.accounting import ONE_OF_SEVERAL, Guarantee
from spineflow.tasks.ledger.charges import charge
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.pages.document import Section
from spineflow.tasks.products.several import (
    _dataset,
    _guarantee,
    write_products_report,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings import ProductSettings

PARTS = ("topdown", "trips")


class Settings(ProductSettings):
    """Of several products on one dataset."""

    PRODUCT = "products"


def settings_of(folder: Path, **privacy) -> Settings:
    own = {"dataset": "town", "ledger": str(folder / "ledger.db"), **privacy}
    return Settings.model_validate({"privacy": own, "input": {"confidential": not privacy}})


def made_run(folder: Path, stages: dict[str, float], passed: tuple[bool, ...] = ()) -> RunDirectory:
    run = RunDirectory(folder)
    run.root.mkdir(parents=True, exist_ok=True)
    run.write_manifest(
        {
            "run_id": f"run of {folder.name}",
            "created": "2020-04-01T00:00:00Z",
            "settings_digest": "s" * 64,
            "code_version": "c0de",
            "status": "complete",
            "stages": {
                name: {"status": "complete", "seconds": seconds} for name, seconds in stages.items()
            },
        }
    )
    if passed:
        run.checks.mkdir()
        checks = [
            {"universe": "persons", "name": f"check_{n}", "passed": ok, "detail": "words"}
            for n, ok in enumerate(passed)
        ]
        (run.checks / "checks.json").write_text(json.dumps({"checks": checks}))
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of two products, whose checks have passed."""
    run = made_run(tmp_path / "whole", {"topdown": 5.0, "trips": 1.0})
    made_run(run.root / "topdown", {"ingest": 2.0, "spine": 3.0}, (True, True, True))
    made_run(run.root / "trips", {"ingest": 1.0}, (True, True))
    return run


def spend(folder: Path) -> None:
    """Charge both products, rho 1/2 and 3/2, and what another dataset has spent."""
    ledger = open_ledger(folder / "ledger.db")
    for number, (dataset, product, rho) in enumerate(
        (("town", "topdown", "1/2"), ("town", "trips", "3/2"), ("village", "trips", "7"))
    ):
        draws = [UniversePlan("persons", "discrete_gaussian", Guarantee("zcdp", Fraction(rho)))]
        charge(
            ledger, run_id=f"run-{number}", draws=draws, dataset=dataset, product=product, inputs={}
        )


def test_the_page_counts_the_checks_of_all_products(run: RunDirectory, tmp_path: Path) -> None:
    public = settings_of(tmp_path, seed=1)
    further = (Section("Together", ("More is made of both.",)),)
    page = write_products_report(run, public, PARTS, further)
    assert page == run.report
    text = page.read_text(encoding="utf-8")
    assert "2 products are released: all 5 checks of them passed." in text
    for words in (
        "Products of town",
        "More is made of both.",
        'href="../trips/release/"',
        'href="../topdown/report/report.html"',
        "Nothing is guaranteed",
        "Runs that are not private are not charged.",
        "NOT PRIVATE",
    ):
        assert words in text
    # 2 and 3 seconds of one, 1 of the other.
    assert ">5 s<" in text or "5 s" in text
    made_run(run.root / "other", {"ingest": 1.0}, (True, False, False))
    text = write_products_report(run, public, (*PARTS, "other")).read_text(encoding="utf-8")
    assert "2 of 8 checks of 3 products failed." in text


def test_what_a_dataset_has_spent_is_told_by_product_and_together(tmp_path: Path) -> None:
    """rho 1/2 and 3/2: 2 in all, of which no other dataset's are."""
    spend(tmp_path)
    settings = settings_of(tmp_path)
    dataset = _dataset(settings)
    spent = {name: own["rho"] for name, own in dataset["products"].items()}
    assert spent == {"topdown": "1/2", "trips": "3/2"}
    sentence = _guarantee(settings, dataset)
    assert "from a rho of 2)" in sentence and "at delta 1e-10" in sentence
    assert "over all records" not in sentence
    homes = UniversePlan(
        "homes", "discrete_gaussian", Guarantee("zcdp", Fraction(1), ONE_OF_SEVERAL)
    )
    ledger = open_ledger(tmp_path / "ledger.db")
    charge(ledger, run_id="homes", draws=[homes], dataset="town", product="topdown", inputs={})
    sentence = _guarantee(settings, _dataset(settings))
    assert "from a rho of 3)" in sentence
    assert "over all records that one person's change may change, rho is 6" in sentence


def test_what_is_not_private_is_not_charged(tmp_path: Path) -> None:
    public = settings_of(tmp_path, seed=1)
    assert _dataset(public) is None
    assert _guarantee(public, None).startswith("Nothing is guaranteed: ")
