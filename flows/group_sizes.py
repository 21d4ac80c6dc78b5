"""The group-sizes flow: how many groups of each size there are in every region, consistently.

    ingest -> charge -> measure, level by level -> estimate -> tabulate -> checks -> release
           -> report

All data travel through the run directory; what the tasks hand to each other are names and digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import flow
from rich.table import Table

from ..tasks.group_sizes.checks.accuracy import read_accuracy
from ..tasks.group_sizes.checks.comparison import FIGURES, KEYS, compared
from ..tasks.group_sizes.checks.expected import settings_of_release
from ..tasks.group_sizes.checks.steps import check_release, release_run, report_run
from ..tasks.group_sizes.estimation.steps import estimate
from ..tasks.group_sizes.ingest.files import read_plan
from ..tasks.group_sizes.ingest.read import check_groups, costs, plan_of, public_hierarchy
from ..tasks.group_sizes.ingest.steps import ingest
from ..tasks.group_sizes.measurement.steps import charge_ledger, measure
from ..tasks.group_sizes.release.certificate import facts_of
from ..tasks.group_sizes.release.noise import noise_table
from ..tasks.group_sizes.release.report import (
    NEIGHBORS,
    loss_text,
    sizes_text,
    write_report,
)
from ..tasks.group_sizes.release.steps import tabulate
from ..tasks.group_sizes.settings import GroupSizesSettings
from ..tasks.group_sizes.workload.costs import budget_report, needed_budget, needed_split
from ..tasks.products.comparison import write_comparison
from ..tasks.runs.directory import RunDirectory
from .console import page, print_finished, print_rules
from .entry import settings_flow
from .form import GroupSizesForm
from .order import Order, announced, call, submitted
from .product import Errors, Product
from .results import show_outcome, show_table
from .running import entered, stages_run_name, tracker_of

group_sizes = settings_flow(
    __name__,
    "group-sizes",
    lambda: PRODUCT,
    GroupSizesForm(),
    (
        "Releases how many groups, such as households, there are of every size in "
        "every region. Every draw of noise is charged to the dataset's ledger first; "
        "the release appears once every check has passed."
    ),
)


@flow(name="group-sizes-stages", flow_run_name=stages_run_name, persist_result=False)
def group_sizes_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, GroupSizesSettings) as (run, settings):
        waves = announced(run, settings, order(run, settings))
        for wave in submitted(run, waves, tracker_of(run, settings, order)):
            if "ingest" in wave:
                plan = read_plan(run)
                about = f"{plan.mechanism}, every level"
                show_table(noise_table(plan), key="group-size-noise", description=about)
        show_outcome(run, settings)
    return str(run.release)


def order(run: RunDirectory, _settings: GroupSizesSettings) -> Order:
    """The steps of a run; the levels are measured side by side."""
    ingested = call(ingest)
    yield {"ingest": [ingested]}
    charged = call(charge_ledger, after=[ingested])
    yield {"ledger": [charged]}
    levels = read_plan(run).measured_levels
    made = [call(measure, level.level, after=[charged]) for level in levels]
    yield {"measure": made}
    for stage, step in {
        "estimate": estimate,
        "tables": tabulate,
        "checks": check_release,
        "release": release_run,
        "report": report_run,
    }.items():
        made = [call(step, after=made)]
        yield {stage: made}


def check(settings: GroupSizesSettings) -> None:
    """Check the tables against every rule, and that the settings fit them; draw no noise."""
    found = check_groups(settings)
    with_counts = not settings.input.confidential
    print_rules(found, with_counts=with_counts)
    accepted = found.accepted(with_counts=with_counts)
    plan_of(settings, accepted.hierarchy, int(accepted.counts.sum()))


def print_costs(settings: GroupSizesSettings) -> None:
    """The same as a table."""
    plan = plan_of(settings, public_hierarchy(settings), 0)
    cost = budget_report(plan)
    loss = f"epsilon {cost['epsilon']['tight']}" if plan.rho is None else loss_text(plan)
    print(
        f"groups: {plan.mechanism}, {plan.calibration} calibration, {loss} "
        f"({NEIGHBORS[plan.bounded]}); rho {cost['rho']} of bounded zCDP in the ledger"
    )
    noise = noise_table(plan)
    table = Table(*noise.headers)
    for row in noise.rows:
        table.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row))
    page().print(table)


def finished(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """The summary at the end of a run: what is in the release, and what it cost."""
    plan = read_plan(run)
    regions = ", ".join(f"{level.n_regions:,} {level.level}" for level in plan.levels)
    print_finished(
        run,
        settings,
        [
            f"{plan.groups:,} groups of size {sizes_text(plan)}; {regions}",
            f"{plan.mechanism}, {plan.calibration} calibration; {loss_text(plan)}, "
            f"{NEIGHBORS[plan.bounded]}",
        ],
        facts_of(settings, plan).statement,
    )


def report(run: RunDirectory, settings: GroupSizesSettings) -> Path:
    """Write the report again."""
    return write_report(run, settings, None if settings.input.confidential else read_accuracy(run))


def needed(settings: GroupSizesSettings, target: str, margin: int) -> str:
    """The budget that the measured counts of a level need for a margin of error."""
    return needed_budget(plan_of(settings, public_hierarchy(settings), 0), target, margin)


def needed_at_once(settings: GroupSizesSettings, wanted: Mapping[str, int]) -> str | None:
    """The rho and the shares with which estimates of several levels have margins of error."""
    return needed_split(plan_of(settings, public_hierarchy(settings), 0), wanted)


def compare(runs: Sequence[tuple[RunDirectory, GroupSizesSettings]]) -> Path:
    """Runs side by side: errors by level."""
    return write_comparison([compared(run, settings) for run, settings in runs], KEYS, FIGURES)


def errors(run: RunDirectory, settings: GroupSizesSettings) -> Errors:
    """The errors of a run, as comparisons show them."""
    return Errors(compared(run, settings).errors, KEYS, FIGURES)


PRODUCT: Product = Product(
    settings=GroupSizesSettings,
    flow=group_sizes,
    stages=group_sizes_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    facts=lambda run, settings: facts_of(settings, read_plan(run)),
    order=order,
    compare=compare,
    errors=errors,
    of_release=settings_of_release,
    needed=needed,
    needed_at_once=needed_at_once,
)
