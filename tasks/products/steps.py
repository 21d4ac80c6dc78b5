"""The step that charges a run of any product."""

from __future__ import annotations

from ..ledger.charging import is_settled
from ..runs.directory import RunDirectory
from ..runs.handles import Made, found, made
from ..runs.settings import ProductSettings
from ..runs.steps import step
from .registry import product_of, settings_of


@step("charge ledger", settings_of, run_name="charge ledger", retried=False)
def charge_ledger(run: RunDirectory, settings: ProductSettings) -> Made:
    """Recompute what will be drawn, and enter the run in the ledger before anything is."""
    product = product_of(run)
    if is_settled(run, settings, product.measurement_files(run, settings)):
        return found("")
    product.charge_run(run, settings)
    return made("")
