"""The design flow: the best split of a topdown budget, and its gain on data that may be disclosed.

    read the input -> design -> for each allocation and estimator: spine and constraints
                   -> replicates -> errors, differences and designed settings -> report

Finished parts are kept in the run directory, so that an interrupted comparison resumes.
`spineflow design topdown` finds the split alone, reads no person, and needs no flow.
"""

from __future__ import annotations

from ..tasks.products.product import Product, Words
from ..tasks.runs.directory import RunDirectory
from ..tasks.study.steps import prepare, read_tuning_data, replicate
from ..tasks.topdown.design.comparison import ALLOCATIONS, TIDY, trials_of, write_report
from ..tasks.topdown.design.settings import ComparisonSettings
from ..tasks.topdown.design.steps import design_budgets, release_comparison, report_comparison
from .entry import flow_of_product
from .stages import finish, stage


def stages(run: RunDirectory, settings: ComparisonSettings) -> None:
    """Submit the stages of a run; estimators and replicates go side by side."""
    root = str(run.root)
    with stage("ingest"):
        read = read_tuning_data.submit(root)
    with stage("design"):
        design_budgets.submit(root, wait_for=[read])
    finish()
    for allocation, trials in trials_of(run).items():
        with stage("replicates", f"replicates {allocation}"):
            for trial in trials.values():
                prepared = prepare.submit(root, trial)
                for seed in range(1, settings.comparison.replicates + 1):
                    replicate.submit(root, trial, seed, wait_for=[prepared])
        finish()
    with stage("release"):
        compared = release_comparison.submit(root)
    with stage("report"):
        report_comparison.submit(root, wait_for=[compared])


def summary(run: RunDirectory, settings: ComparisonSettings) -> tuple[str, ...]:
    """Place of the results."""
    n = settings.comparison.replicates
    return (
        f"{len(ALLOCATIONS)} allocations, {n} replicates of each by every estimator",
        f"designed settings: {run.release / 'settings.toml'}",
        f"errors and differences: {run.release / TIDY}",
        f"report: {run.report}",
    )


PRODUCT: Product = Product(ComparisonSettings, words=Words(restore=write_report, summary=summary))

design = flow_of_product(
    PRODUCT,
    stages,
    "Finds the best split of a topdown budget for declared targets, and compares it with the "
    "settings' own and with an even one, by every estimator, on data that may be disclosed. It "
    "releases no data, but settings that are ready to run.",
)
