"""The steps that check a finished run of any product, let its release through and report on it."""

from __future__ import annotations

from ....validation.outcome import CHECKS_FILE
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.settings import ProductSettings
from ...runs.steps import step
from ..acceptance import compared, released
from ..certificate import write_certificate
from ..registry import product_of, settings_of


@step("check", settings_of, run_name="check")
def check_release(run: RunDirectory, settings: ProductSettings) -> Made:
    """Check measurements, estimates and release by code independent of what made them."""
    path = run.checks / CHECKS_FILE
    if run.release.exists():
        return found(path)
    return made(path, {"checks passed": len(product_of(run).check_run(run, settings))})


@step("release", settings_of, run_name="release")
def release_run(run: RunDirectory, settings: ProductSettings) -> Made:
    """Add the certificate, and move the checked release to where readers look for it."""
    product = product_of(run)

    def certify() -> None:
        plan = product.plan_of(run, settings)
        write_certificate(run, settings, plan, product.facts(run, settings))

    return released(run, certify)


@step("report", settings_of, run_name="report")
def report_run(run: RunDirectory, settings: ProductSettings) -> Made:
    """Compare the release with the truth, in confidence, and write the public report."""
    product = product_of(run)
    # Where a step of its own compares, that step has said whether the comparison failed.
    if product.accuracy.write is not None:
        compared(run, settings, lambda: product.compare_with_truth(run, settings))
    return made(product.report(run, settings))
