"""The trips flow: from a table of origins and destinations, or any tree, to a released table.

    ingest -> charge -> for every level: cut, measure, estimate -> combine
           -> table -> checks -> release -> report

A top-down mechanism measures a level once the level above is estimated. Where all nodes are
measured whatever the noise, the levels are measured side by side, and where measurements are
combined, that comes after all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import Task, flow
from pyarrow import parquet
from rich.table import Table

from ..tasks.pages.document import Table as PageTable
from ..tasks.pages.numbers import shown_delta, shown_epsilon
from ..tasks.products.certificate import Facts
from ..tasks.products.comparison import write_comparison
from ..tasks.runs.directory import RunDirectory
from ..tasks.trips.checks.accuracy import read_accuracy
from ..tasks.trips.checks.comparison import FIGURES, KEYS, compared
from ..tasks.trips.checks.expected import settings_of_release
from ..tasks.trips.checks.steps import check_release, release_run, report_run
from ..tasks.trips.estimation.estimate import ONLY_SHARD
from ..tasks.trips.estimation.steps import combine, estimate
from ..tasks.trips.ingest.files import plan_of, read_tree
from ..tasks.trips.ingest.ingest import check_input, costs, public_shape, refuse_delta_of
from ..tasks.trips.ingest.steps import ingest
from ..tasks.trips.measurement.files import read_cuts
from ..tasks.trips.measurement.steps import charge_ledger, cut, measure
from ..tasks.trips.paths import level_folder
from ..tasks.trips.release.certificate import facts_of
from ..tasks.trips.release.false_cells import false_cells
from ..tasks.trips.release.report import write_report
from ..tasks.trips.release.statements import (
    conversion_sentence,
    cost_table,
    delta_warning,
    noise_section,
)
from ..tasks.trips.release.steps import write_table
from ..tasks.trips.release.table import TABLE, n_trips
from ..tasks.trips.settings import TripsSettings
from ..tasks.trips.workload.costs import budget_report, needed_budget, needed_split
from ..tasks.trips.workload.mechanisms import FULL_INFORMATION
from ..tasks.trips.workload.plan import Plan, make_plan
from .console import page, print_finished, print_rules
from .entry import settings_flow
from .form import TripsForm
from .order import Order, Wave, announced, call, submitted
from .product import Errors, Product
from .results import show_outcome, show_table
from .running import entered, stages_run_name, tracker_of

trips = settings_flow(
    __name__,
    "trips",
    lambda: PRODUCT,
    TripsForm(),
    (
        "Releases origin/destination tables, or any table that forms a tree, by "
        "InfTDA. Every draw of noise is charged to the dataset's ledger first; the "
        "release appears once every check has passed."
    ),
)


@flow(name="trips-stages", flow_run_name=stages_run_name, persist_result=False)
def trips_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, TripsSettings) as (run, settings):
        waves = announced(run, settings, order(run, settings))
        for wave in submitted(run, waves, tracker_of(run, settings, order)):
            if "ingest" in wave:
                _show_noise(run, settings)
        show_outcome(run, settings)
    return str(run.release)


def order(run: RunDirectory, settings: TripsSettings) -> Order:
    """The steps of a run."""
    yield {"ingest": [call(ingest)]}
    yield from tree_to_table(run, settings)
    for stage, step in {
        "checks": check_release,
        "release": release_run,
        "report": report_run,
    }.items():
        yield {stage: [call(step)]}


def tree_to_table(run: RunDirectory, settings: TripsSettings) -> Order:
    """The steps from an ingested tree to the table that is to be checked."""
    plan = plan_of(run, settings)
    yield {"ledger": [call(charge_ledger)]}
    if plan.mechanism == FULL_INFORMATION and plan.measures_all:
        yield from _measured(run, plan.levels)
    else:
        yield from _down(run, plan)
    if plan.mechanism == FULL_INFORMATION:
        yield {"combine": [call(combine)]}
    yield {"table": [call(write_table)]}


def _down(run: RunDirectory, plan: Plan) -> Order:
    """Measure and estimate level by level; what is inferred is estimated alone."""
    for level in sorted({*plan.levels, *plan.inferred}):
        if level in plan.inferred:
            yield {f"estimate {level_folder(level)}": [call(estimate, level, ONLY_SHARD)]}
            continue
        yield from _measured(run, [level])
        yield _of_shards(run, "estimate", estimate, [level])


def _measured(run: RunDirectory, levels: Sequence[int]) -> Order:
    """Cut levels whose parents are known, and measure them side by side."""
    yield {f"cut {level_folder(level)}": [call(cut, level)] for level in levels}
    yield _of_shards(run, "measure", measure, levels)


def _of_shards(run: RunDirectory, stage: str, step: Task, levels: Sequence[int]) -> Wave:
    """The calls of a step for every shard of levels that are cut."""
    return {
        f"{stage} {level_folder(level)}": [
            call(step, level, shard.name) for shard in read_cuts(run, level).shards
        ]
        for level in levels
    }


def check(settings: TripsSettings) -> None:
    """Check the files against every rule, and that the shares fit the tree; draw no noise."""
    found = check_input(settings)
    with_counts = not settings.input.confidential
    print_rules(found, with_counts=with_counts)
    accepted = found.accepted(with_counts=with_counts)
    refuse_delta_of(settings, accepted.leaves.total)
    make_plan(settings, accepted.shape.tree)
    if settings.contribution.has_invariant_total:
        _warn(delta_warning(settings, accepted.leaves.total))


def print_costs(settings: TripsSettings) -> None:
    """The same as tables."""
    plan = make_plan(settings, public_shape(settings).tree)
    console = page()
    blocks = (
        cost_table(settings, plan),
        *conversion_sentence(settings, plan),
        *noise_section(settings, plan).blocks,
    )
    for block in blocks:
        if isinstance(block, PageTable):
            table = Table(*block.headers)
            for row in block.rows:
                table.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row))
            console.print(table)
        else:
            print(block)


def finished(run: RunDirectory, settings: TripsSettings) -> None:
    """The summary at the end of a run."""
    plan = plan_of(run, settings)
    cost = budget_report(plan, settings.report_delta)
    epsilon = shown_epsilon(cost["epsilon"]["tight"])
    n_rows = parquet.read_metadata(run.release / f"{TABLE}.parquet").num_rows
    delta = shown_delta(cost["delta"])
    line = f"{plan.mechanism}: {n_rows:,} rows; epsilon {epsilon} at delta {delta}"
    expected = false_cells(run, plan).sentence
    print_finished(run, settings, [line, expected], _facts(run, settings).statement)
    _warn(delta_warning(settings, n_trips(run.release, plan.tree)))


def report(run: RunDirectory, settings: TripsSettings) -> Path:
    """Write the report again."""
    accuracy = None if settings.input.confidential else read_accuracy(run)
    return write_report(run, settings, accuracy)


def _facts(run: RunDirectory, settings: TripsSettings) -> Facts:
    """What the certificate says."""
    return facts_of(settings, plan_of(run, settings), read_tree(run).total)


def needed(settings: TripsSettings, target: str, margin: int) -> str:
    """The budget that the counts of a level, by its number or name, need for a margin of error."""
    return needed_budget(make_plan(settings, public_shape(settings).tree), target, margin)


def needed_at_once(settings: TripsSettings, wanted: Mapping[str, int]) -> str | None:
    """The rho and the shares with which estimates of several levels have margins of error."""
    return needed_split(make_plan(settings, public_shape(settings).tree), wanted)


def compare(runs: Sequence[tuple[RunDirectory, TripsSettings]]) -> Path:
    """Runs side by side: errors and false cells by level."""
    return write_comparison([compared(run, settings) for run, settings in runs], KEYS, FIGURES)


def errors(run: RunDirectory, settings: TripsSettings) -> Errors:
    """The errors of a run, as comparisons show them."""
    return Errors(compared(run, settings).errors, KEYS, FIGURES)


PRODUCT: Product = Product(
    settings=TripsSettings,
    flow=trips,
    stages=trips_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    facts=_facts,
    order=order,
    compare=compare,
    errors=errors,
    of_release=settings_of_release,
    needed=needed,
    needed_at_once=needed_at_once,
)


def _show_noise(run: RunDirectory, settings: TripsSettings) -> None:
    plan = plan_of(run, settings)
    for block in noise_section(settings, plan).blocks:
        if isinstance(block, PageTable):
            show_table(block, key="budget-trips", description=plan.mechanism)


def _warn(sentence: str | None) -> None:
    if sentence is not None:
        print(f"warning: {sentence}", file=sys.stderr)
