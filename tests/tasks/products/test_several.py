"""The page and the index of several products: their checks, their time, and what all cost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from spineflow.tasks.ledger.accounting import ONE_OF_SEVERAL, Guarantee
from spineflow.tasks.ledger.charges import charge
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.several import _guarantee
from spineflow.tasks.products.spent import dataset_spending
from spineflow.tasks.runs.settings import ProductSettings


class Settings(ProductSettings):
    """Of several products on one dataset."""

    PRODUCT = "products"


def settings_of(folder: Path, **privacy) -> Settings:
    own = {"dataset": "town", "ledger": str(folder / "ledger.db"), **privacy}
    return Settings.model_validate({"privacy": own, "input": {"confidential": not privacy}})


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


def test_what_a_dataset_has_spent_is_told_by_product_and_together(tmp_path: Path) -> None:
    """rho 1/2 and 3/2: 2 in all, of which no other dataset's are."""
    spend(tmp_path)
    settings = settings_of(tmp_path)
    dataset = dataset_spending(settings, {})
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
    sentence = _guarantee(settings, dataset_spending(settings, {}))
    assert "from a rho of 3)" in sentence
    assert "over all records that one person's change may change, rho is 6" in sentence


def test_what_is_not_private_is_not_charged(tmp_path: Path) -> None:
    public = settings_of(tmp_path, seed=1)
    assert dataset_spending(public, {}) is None
    assert _guarantee(public, None).startswith("Nothing is guaranteed: ")
