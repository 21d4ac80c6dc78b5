"""The detailed-groups flow: SafeTab-P's adaptive tables for detailed race and ethnicity groups.

    ingest -> count, level by level -> charge -> stage 1 -> stage 2, shard by shard
           -> suppression -> marginals -> coterminous geographies, alone (if asked), pass by pass
           -> files -> checks -> release -> report

Stage 2 of a shard waits for its stage 1 alone. All data travel through the run directory; what the
tasks hand to each other are names and digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

from prefect import flow
from pyarrow import parquet
from rich.table import Table

from ..tasks.detailed_groups.checks.accuracy import read_accuracy
from ..tasks.detailed_groups.checks.comparison import FIGURES, KEYS, compared
from ..tasks.detailed_groups.checks.steps import check_release, release_run, report_run
from ..tasks.detailed_groups.ingest.ingest import (
    check_input_of,
    parameters_of,
    run_parameters,
)
from ..tasks.detailed_groups.ingest.inputs import read_blocks
from ..tasks.detailed_groups.ingest.steps import count, ingest
from ..tasks.detailed_groups.ingest.target_counts import (
    target_counts,
    write_target_counts,
)
from ..tasks.detailed_groups.measurement.charge import guarantee_of, has_stage_1
from ..tasks.detailed_groups.measurement.steps import (
    charge_ledger,
    measure_tables,
    measure_totals,
)
from ..tasks.detailed_groups.paths import measured_folder, read_shards
from ..tasks.detailed_groups.postprocess.redundant import (
    redundant_spending,
    redundant_spending_of_run,
)
from ..tasks.detailed_groups.postprocess.run import stages_of
from ..tasks.detailed_groups.postprocess.steps import STEPS
from ..tasks.detailed_groups.release.budget import (
    costs,
    needed_budget,
    refuse_settings,
)
from ..tasks.detailed_groups.release.certificate import facts_of
from ..tasks.detailed_groups.release.noise_comparison import sentence_of
from ..tasks.detailed_groups.release.relative_errors import populations_table
from ..tasks.detailed_groups.release.report import write_report
from ..tasks.detailed_groups.release.steps import write_tables
from ..tasks.detailed_groups.settings import DetailedGroupsSettings
from ..tasks.detailed_groups.workload.mechanism import MechanismParameters
from ..tasks.detailed_groups.workload.parameters import read_specification
from ..tasks.detailed_groups.workload.regions import areas_of
from ..tasks.detailed_groups.workload.wanted_margins import (
    shown_percent,
)
from ..tasks.pages.document import Table as ReportTable
from ..tasks.pages.numbers import shown_epsilon
from ..tasks.products.certificate import Facts
from ..tasks.products.comparison import write_comparison
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.tables.findings import UnreadableInput
from .console import page, print_finished, print_notes, print_rules
from .entry import settings_flow
from .form import DetailedGroupsForm
from .order import Call, Order, Wave, announced, call, submitted
from .product import Errors, Product
from .public_tables import show_notes
from .results import show_outcome, show_table
from .running import entered, stages_run_name, tracker_of

detailed_groups = settings_flow(
    __name__,
    "detailed-groups",
    lambda: PRODUCT,
    DetailedGroupsForm(),
    (
        "Releases adaptive tables for detailed race and ethnicity groups, by "
        "SafeTab-P. Every draw of noise is charged to the dataset's ledger first; the "
        "release appears once every check has passed."
    ),
)


@flow(name="detailed-groups-stages", flow_run_name=stages_run_name, persist_result=False)
def detailed_groups_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, DetailedGroupsSettings) as (run, settings):
        redundant = cache(partial(redundant_spending_of_run, run, settings))
        waves = announced(run, settings, order(run, settings), redundant)
        for wave in submitted(run, waves, tracker_of(run, settings, order)):
            if "counts" in wave:
                show_notes(
                    redundant(),
                    key="redundant-spending",
                    description="What is about to be measured twice",
                )
            if "stage 2" in wave:
                rows = tuple(_groups_of_levels(run, settings))
                show_table(
                    ReportTable(("region type", "level", "groups"), rows),
                    key="population-groups",
                    description="Population groups measured",
                )
        show_outcome(run, settings)
    return str(run.release)


def order(run: RunDirectory, settings: DetailedGroupsSettings) -> Order:
    """The steps of a run."""
    ingested = call(ingest)
    yield {"ingest": [ingested]}
    levels = dict.fromkeys((shard.region_type, shard.level) for shard in read_shards(run))
    counted = [call(count, *level, after=[ingested]) for level in levels]
    yield {"counts": counted}
    charged = call(charge_ledger, after=counted)
    yield {"ledger": [charged]}
    yield _measured(run, charged)
    passes = run_parameters(run, settings).passes
    before: dict[str, list[Call]] = {name: [] for name in passes}
    for stage in stages_of(settings):
        before = {name: [call(STEPS[stage], name, after=before[name])] for name in passes}
        yield {stage: [made for calls in before.values() for made in calls]}
    made = [made for calls in before.values() for made in calls]
    for stage, step in {
        "files": write_tables,
        "checks": check_release,
        "release": release_run,
        "report": report_run,
    }.items():
        made = [call(step, after=made)]
        yield {stage: made}


def _measured(run: RunDirectory, charged: Call) -> Wave:
    """Both stages of every shard; the second of each after its first."""
    shards = {s: (s.region_type, s.level, s.name) for s in read_shards(run)}
    totals = {
        shard: call(measure_totals, *keys, after=[charged])
        for shard, keys in shards.items()
        if has_stage_1(run, shard)
    }
    tables = [
        call(measure_tables, *keys, after=[totals.get(shard, charged)])
        for shard, keys in shards.items()
    ]
    return {"stage 1": list(totals.values()), "stage 2": tables}


def check(settings: DetailedGroupsSettings) -> None:
    """Check parameters, persons and geography against every rule; draw no noise."""
    found = check_input_of(settings)
    with_counts = not settings.input.confidential
    print_rules(found, with_counts=with_counts)
    accepted = found.accepted(with_counts=with_counts)
    declared = accepted.invariants if settings.mechanism.units_are_invariant else None
    parameters = parameters_of(settings)
    if parameters.wanted.by_level:
        _print_wanted(parameters)
    print_notes(redundant_spending(settings, parameters, accepted.blocks, declared))


def _print_wanted(parameters: MechanismParameters) -> None:
    """The budgets of the levels that want a margin of error."""
    percent = shown_percent(parameters.wanted.coverage)
    table = Table("region type", "level", f"{percent} % margin wanted", "budget", "exactly")
    for (region_type, level), due in parameters.wanted.by_level.items():
        budget = parameters.budget_of(region_type, level)
        table.add_row(region_type, str(level), str(due), f"{float(budget):.6g}", str(budget))
    page().print(table)


def print_costs(settings: DetailedGroupsSettings) -> None:
    """The same as tables."""
    console, parameters = page(), parameters_of(settings)
    for region_pass, report in costs(settings).items():
        native = report["native"]
        symbol = "epsilon" if "epsilon" in native else "rho"
        console.print(
            f"\n[bold]{region_pass}[/bold]: {symbol} {native[symbol]}, {native['neighbors']}; "
            f"bounded rho {report['rho']}, epsilon {shown_epsilon(report['epsilon']['tight'])} at "
            f"delta {report['delta']}"
        )
        columns = {
            "region type": "region_type",
            "level": "level",
            "budget": "budget",
            "groups of a person": "stability",
            f"{shown_percent(parameters.wanted.coverage)} % margin": "margin",
            **({"wanted": "margin_wanted"} if parameters.wanted.by_level else {}),
            "total only": "margin_total_only",
            "1.96 s.d.": "margin_by_formula",
            "target": "margin_target",
            "suppressed up to": "suppression_threshold",
        }
        needed = sorted({name for level in report["levels"] for name in level["needed_budget"]})
        table = Table(*columns, *(f"budget for {name.replace('_', ' ')}" for name in needed))
        for level in report["levels"]:
            cells = [level[key] for key in columns.values()]
            cells += [_decimal(level["needed_budget"].get(name)) for name in needed]
            table.add_row(*("" if cell is None else str(cell) for cell in cells))
        console.print(table)
        if report["levels"]:
            sizes = populations_table(report["levels"])
            shown = Table(*sizes.headers, title="Populations from which tables are accurate")
            for row in sizes.rows:
                shown.add_row(*map(str, row))
            console.print(shown)
        for comparison in report["noise_comparison"]:
            console.print(sentence_of(comparison))
    with suppress(InputRefused, UnreadableInput):
        blocks, invariants = read_blocks(settings.input.tables, parameters)
        declared = invariants if settings.mechanism.units_are_invariant else None
        print_notes(redundant_spending(settings, parameters, blocks, declared))


def finished(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """The summary at the end of a run: what is in the release, and what it cost."""
    rows = parquet.read_metadata(run.release / "population_groups.parquet").num_rows
    guarantee = guarantee_of(run_parameters(run, settings))
    symbol = "epsilon" if guarantee.definition == "pure_dp" else "rho"
    cost = "infinite" if settings.privacy.infinite else f"{float(guarantee.parameter):.4f}"
    measured = sum(n_groups for _, _, n_groups in _groups_of_levels(run, settings))
    print_finished(
        run,
        settings,
        [f"{measured:,} groups measured, {rows:,} rows released", f"{symbol} {cost}, unbounded"],
        _facts(run, settings).statement,
    )


def report(run: RunDirectory, settings: DetailedGroupsSettings) -> Path:
    """Write the report again."""
    return write_report(run, settings, None if settings.input.confidential else read_accuracy(run))


def _facts(run: RunDirectory, settings: DetailedGroupsSettings) -> Facts:
    """What the certificate says."""
    return facts_of(settings, run_parameters(run, settings))


def needed(settings: DetailedGroupsSettings, target: str, margin: int) -> str:
    """The budget that a target REGION TYPE:LEVEL needs for a margin of error."""
    specification = read_specification(settings.input.parameters)
    return needed_budget(parameters_of(settings), specification, target, margin)


def compare(runs: Sequence[tuple[RunDirectory, DetailedGroupsSettings]]) -> Path:
    """Runs side by side: errors and suppression by level and table."""
    return write_comparison([compared(run, settings) for run, settings in runs], KEYS, FIGURES)


def write_targets(settings: DetailedGroupsSettings, folder: Path) -> tuple[Path, ...]:
    """Write the true counts of input that is not confidential; returns the files."""
    with_counts = not settings.input.confidential
    accepted = check_input_of(settings).accepted(with_counts=with_counts)
    counts = target_counts(
        accepted.persons,
        areas_of(accepted.blocks)[1],
        read_specification(settings.input.parameters),
        parameters_of(settings),
    )
    return write_target_counts(folder, counts)


def errors(run: RunDirectory, settings: DetailedGroupsSettings) -> Errors:
    """The errors of a run, as comparisons show them."""
    return Errors(compared(run, settings).errors, KEYS, FIGURES)


PRODUCT: Product = Product(
    settings=DetailedGroupsSettings,
    flow=detailed_groups,
    stages=detailed_groups_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    facts=_facts,
    order=order,
    compare=compare,
    errors=errors,
    needed=needed,
    refuse=refuse_settings,
)


def _groups_of_levels(
    run: RunDirectory, settings: DetailedGroupsSettings
) -> list[tuple[str, int, int]]:
    """Region type, level and number of measured groups of every level: public."""
    found = []
    for item in run_parameters(run, settings).budgets:
        folder = measured_folder(run, item.region_type, item.level)
        rows = [parquet.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))]
        found.append((item.region_type, item.level, sum(rows)))
    return found


def _decimal(fraction: str | None) -> str | None:
    return None if fraction is None else f"{float(Fraction(fraction)):.6g}"
