"""Detailed groups as products: SafeTab-P's adaptive tables of persons for race and ethnicity
groups, and SafeTab-H's of households by the group of the householder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyarrow import parquet

from ...validation.detailed_groups.privacy_loss import check_privacy
from ...validation.detailed_groups.run_checks import run_checks
from ..pages.document import Block, Section, Table
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import (
    Accuracy,
    Checks,
    Figures,
    Product,
    Rules,
    UiTable,
    Words,
    format_notes,
)
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..tables.findings import UnreadableInput
from .ingest.ingest import (
    Settings,
    check_input_of,
    parameters_of,
    run_parameters,
    run_specification,
)
from .ingest.inputs import AcceptedGroups, read_blocks
from .ingest.target_counts import target_counts, write_target_counts
from .measurement.measure import measurement_files, plan_of_run
from .paths import measured_folder, truth_files
from .postprocess.run import redundant_spending, redundant_spending_of_run
from .release import files, household_report
from .release.accuracy import (
    FIGURES,
    HOUSEHOLD_FIGURES,
    HOUSEHOLD_KEYS,
    KEYS,
    facts_of_run,
    write_accuracy,
)
from .release.budget import costs, curves_of, level_figures, refuse_settings
from .release.figures import populations_table
from .release.report import facts_of, report
from .settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .workload.budgets import format_percent
from .workload.exact_loss import curve_of_change
from .workload.guarantee import exact_of, pass_plan, statement_of, tabulation_plan
from .workload.parameters import MechanismParameters, read_specification
from .workload.regions import areas_of


def check_settings_against_input(
    settings: DetailedGroupsSettings, accepted: AcceptedGroups
) -> Iterator[Block]:
    """The budgets of the levels that want a margin of error, and budget that would be spent
    twice.
    """
    declared = accepted.invariants if settings.mechanism.units_are_invariant else None
    parameters = parameters_of(settings).first
    if parameters.wanted.by_level:
        yield _wanted_margins_table(parameters)
    yield from format_notes(redundant_spending(settings, parameters, accepted.blocks, declared))


def _wanted_margins_table(parameters: MechanismParameters) -> Table:
    percent = format_percent(parameters.wanted.coverage)
    rows = []
    for (region_type, level), due in parameters.wanted.by_level.items():
        budget = parameters.budgets[region_type, level]
        rows.append((region_type, str(level), str(due), f"{float(budget):.6g}", str(budget)))
    headers = ("region type", "level", f"{percent} % margin wanted", "budget", "exactly")
    return Table(headers, tuple(rows))


def plan_of(settings: Settings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and the specification of groups."""
    if run is not None:
        return plan_of_run(run, settings)
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    return Plan.of(
        settings,
        costs(settings).values(),
        statement_of(parameters),
        exact_of(settings),
        [
            replace(tabulation_plan(parameters, name), curve=curve_of_change(own, specification))
            for name, own in parameters.of.items()
        ],
        curves=partial(curves_of, parameters, specification),
        coverage=parameters.first.wanted.coverage,
    )


def words_on_costs(settings: DetailedGroupsSettings, plan: Plan) -> Iterator[Block | Section]:
    """The accuracy that the budgets of every pass buy, and budget spent twice."""
    parameters = parameters_of(settings).first
    columns = {
        "region type": "region_type",
        "level": "level",
        "budget": "budget",
        "groups of a person": "stability",
        f"{format_percent(parameters.wanted.coverage)} % margin": "margin",
        **({"wanted": "margin_wanted"} if parameters.wanted.by_level else {}),
        "total only": "margin_total_only",
        "1.96 s.d.": "margin_by_formula",
        "target": "margin_target",
        "suppressed up to": "suppression_threshold",
    }
    for cost in plan.costs:
        levels, blocks = cost.further["levels"], list[Block]()
        rows = [{header: level[key] for header, key in columns.items()} for level in levels]
        if rows:
            sizes = populations_table(levels)
            blocks += [Table.of(rows), "Populations from which tables are accurate", sizes]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))
    with suppress(InputRefused, UnreadableInput):
        blocks_of_census, invariants = read_blocks(settings.input.tables, parameters)
        declared = invariants if settings.mechanism.units_are_invariant else None
        yield from format_notes(
            redundant_spending(settings, parameters, blocks_of_census, declared)
        )


def summary(run: RunDirectory, settings: Settings) -> tuple[str, ...]:
    """Size and cost of the release."""
    parameters = run_parameters(run, settings)
    measured = sum(n_groups for *_, n_groups in _groups_of_levels(run, settings))
    what = "groups" if parameters.records == "persons" else "tables of groups"
    plan, tidy = pass_plan(parameters), run.release / files.TIDY_FILES[parameters.records]
    cost = "infinite" if plan.loss is None else f"{float(plan.loss):.4f}"
    return (
        f"{measured:,} {what} measured, {parquet.read_metadata(tidy).num_rows:,} rows released",
        f"{plan.symbol} {cost}, unbounded",
    )


def list_ui_tables(
    run: RunDirectory, settings: DetailedGroupsSettings, stages: Collection[str]
) -> Iterator[UiTable]:
    """Number of measured groups, after measurement."""
    if "stage 2" in stages:
        table = Table(("region type", "level", "groups"), tuple(_groups_of_levels(run, settings)))
        yield UiTable("population-groups", "Population groups measured", table)


def write_targets(settings: DetailedGroupsSettings, folder: Path) -> tuple[Path, ...]:
    """Write the true counts of input that is not confidential; returns the files."""
    with_counts = not settings.input.confidential
    accepted = check_input_of(settings).accepted(with_counts=with_counts)
    counts = target_counts(
        accepted.persons,
        areas_of(accepted.blocks)[1],
        read_specification(settings.input.parameters),
        parameters_of(settings).first,
    )
    return write_target_counts(folder, counts)


DETAILED_GROUPS: Product = Product(
    DetailedGroupsSettings,
    plan_of,
    Rules(check_input_of, check_settings_against_input, refuse_settings),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=words_on_costs,
        notes=redundant_spending_of_run,
        certificate=lambda run, settings: facts_of(
            settings, run_parameters(run, settings), run_specification(run)
        ),
        report=report,
        summary=summary,
        shown=list_ui_tables,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        truth_files,
        figures=Figures(KEYS, FIGURES, facts_of_run),
        write_truth=write_targets,
    ),
    measurement_files,
)


def words_on_household_costs(
    settings: DetailedHouseholdsSettings, plan: Plan
) -> Iterator[Block | Section]:
    """The accuracy that the budgets of every pass of households buy, by tabulation."""
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    for cost in plan.costs:
        losses = cost.further["tabulations"].items()
        each = ", ".join(f"{name.upper()} {loss}" for name, loss in losses)
        blocks: list[Block] = [f"{cost.plan.symbol} of each tabulation: {each}"]
        figures = level_figures(parameters, specification, cost.name)
        margins = household_report.margins_table(figures)
        blocks += [] if margins is None else [margins]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))


DETAILED_HOUSEHOLDS: Product = Product(
    DetailedHouseholdsSettings,
    plan_of,
    Rules(check_input_of, refuse=refuse_settings),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=words_on_household_costs,
        certificate=household_report.facts_of_run,
        report=household_report.report,
        summary=summary,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        truth_files,
        figures=Figures(HOUSEHOLD_KEYS, HOUSEHOLD_FIGURES, facts_of_run),
    ),
    measurement_files,
)


def _groups_of_levels(run: RunDirectory, settings: Settings) -> list[tuple[str, int, int]]:
    """Region type, level and number of measured groups of every level: public."""
    found = []
    for name, own in run_parameters(run, settings).of.items():
        for region_type, level in own.budgets:
            paths = measured_folder(run, name, region_type, level).glob("*.parquet")
            n_groups = sum(parquet.read_metadata(path).num_rows for path in paths)
            found.append((region_type, level, n_groups))
    return found
