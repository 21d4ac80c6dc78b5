"""The steps of a run of any product: the charge, checks, release and report, and its copy."""

from __future__ import annotations

from ..ledger.charging import is_settled
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created, reused
from ..runs.publication import copy_release, marker_address
from ..runs.settings import ProductSettings
from ..runs.steps import step
from .acceptance import compare_release, publish_release
from .certificate import write_certificate
from .product import product_of, settings_of


@step("charge ledger", settings_of, run_name="charge ledger", retried=False)
def charge_ledger(run: RunDirectory, settings: ProductSettings) -> Made:
    """Recompute the draws, and enter the run in the ledger before anything is drawn."""
    product = product_of(run)
    if is_settled(run, settings, product.measurement_files(run, settings)):
        return reused("")
    product.charge_run(run, settings)
    return created("")


@step("check", settings_of, run_name="check")
def check_release(run: RunDirectory, settings: ProductSettings) -> Made:
    """Check measurements, estimates and release by independent code."""
    if run.release.exists():
        return reused(run.outcomes)
    product_of(run).check_run(run, settings)
    return created(run.outcomes)


@step("release", settings_of, run_name="release")
def release_run(run: RunDirectory, settings: ProductSettings) -> Made:
    """Add the certificate, and move the checked release to its public folder."""
    product = product_of(run)

    def certify() -> None:
        plan = product.plan_of(run, settings)
        write_certificate(run, settings, plan, product.facts(run, settings))

    return publish_release(run, certify)


@step("report", settings_of, run_name="report")
def report_run(run: RunDirectory, settings: ProductSettings) -> Made:
    """Compare the release with the truth, in confidence, and write the public report."""
    product = product_of(run)
    # A separate comparison step has reported its failure itself.
    if product.accuracy.write is not None:
        compare_release(run, settings, lambda: product.compare_with_truth(run, settings))
    return created(product.report(run, settings))


@step("copy release", settings_of, run_name="copy release")
def copy_checked_release(run: RunDirectory, settings: ProductSettings) -> Made:
    """Copy the checked release to its place in the settings, whole or not at all."""
    place = settings.published_to
    if place is None:
        raise ValueError("the settings of the run name no place for its release")
    is_new = copy_release(run, place)
    marker = marker_address(place, settings.PRODUCT)
    return created(marker) if is_new else reused(marker)
