"""The steps of a run of any product that charge it, and that copy its release."""

from __future__ import annotations

from ..ledger.charging import is_settled
from ..runs.directory import RunDirectory
from ..runs.handles import Made, found, made
from ..runs.publication import copy_release, marker_address
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


@step("copy release", settings_of, run_name="copy release")
def copy_checked_release(run: RunDirectory, settings: ProductSettings) -> Made:
    """Copy the checked release to where the settings say, whole or not at all."""
    place = settings.published_to
    if place is None:
        raise ValueError("the settings of the run name no place for its release")
    is_new = copy_release(run, place)
    marker = marker_address(place, settings.PRODUCT)
    return made(marker) if is_new else found(marker)
