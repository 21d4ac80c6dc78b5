"""Detailed groups as products: SafeTab-P's adaptive tables of persons for race and ethnicity
groups, and SafeTab-H's of households by the group of the householder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from pyarrow import parquet

from ...validation.detailed_groups.privacy_loss import check_privacy
from ...validation.detailed_groups.run_checks import run_checks
from ..ledger.plan import UniversePlan
from ..pages.document import Block, Section, Table
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import (
    Accuracy,
    Checks,
    Figures,
    Product,
    Rules,
    Shown,
    Words,
    noted,
)
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..tables.findings import UnreadableInput
from .checks.accuracy import (
    FIGURES,
    HOUSEHOLD_FIGURES,
    HOUSEHOLD_KEYS,
    KEYS,
    facts_of_households,
    facts_of_run,
    write_accuracy,
    write_household_accuracy,
)
from .ingest import household_ingest
from .ingest.ingest import check_input_of, parameters_of, run_parameters, run_specification
from .ingest.inputs import AcceptedGroups, read_blocks
from .ingest.target_counts import target_counts, write_target_counts
from .measurement import households as measured_households
from .measurement.charge import measurement_files, plan_of_run
from .paths import measured_folder, truth_files
from .postprocess.redundant import redundant_spending, redundant_spending_of_run
from .release import files, household_budget, household_files, household_report
from .release.budget import costs, curves_of, refuse_settings
from .release.certificate import facts_of
from .release.noise_comparison import sentence_of
from .release.relative_errors import populations_table
from .release.report import report
from .settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .workload import household_statement
from .workload.exact_loss import curve_of_change
from .workload.guarantee import universe_plan
from .workload.households import household_plan, tabulation_plan
from .workload.mechanism import MechanismParameters
from .workload.parameters import read_specification
from .workload.regions import areas_of
from .workload.statement import exact_of, statement_of
from .workload.wanted_margins import shown_percent


def fits(settings: DetailedGroupsSettings, accepted: AcceptedGroups) -> Iterator[Block]:
    """The budgets of the levels that want a margin of error, and what would be spent twice."""
    declared = accepted.invariants if settings.mechanism.units_are_invariant else None
    parameters = parameters_of(settings)
    if parameters.wanted.by_level:
        yield _wanted(parameters)
    yield from noted(redundant_spending(settings, parameters, accepted.blocks, declared))


def _wanted(parameters: MechanismParameters) -> Table:
    percent = shown_percent(parameters.wanted.coverage)
    rows = []
    for (region_type, level), due in parameters.wanted.by_level.items():
        budget = parameters.budgets[region_type, level]
        rows.append((region_type, str(level), str(due), f"{float(budget):.6g}", str(budget)))
    headers = ("region type", "level", f"{percent} % margin wanted", "budget", "exactly")
    return Table(headers, tuple(rows))


def plan_of(settings: DetailedGroupsSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and the specification of groups."""
    if run is not None:
        return plan_of_run(run, settings)
    parameters, specification = (
        parameters_of(settings),
        read_specification(settings.input.parameters),
    )
    curve = curve_of_change(parameters, specification)
    return Plan.of(
        settings,
        costs(settings).values(),
        statement_of(settings, parameters),
        exact_of(settings),
        [replace(universe_plan(parameters), curve=curve)],
        curves=partial(curves_of, parameters, specification),
        coverage=parameters.wanted.coverage,
    )


def words_on_costs(settings: DetailedGroupsSettings, plan: Plan) -> Iterator[Block | Section]:
    """What the budgets of every pass buy, and what is spent twice."""
    parameters = parameters_of(settings)
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
    for cost in plan.costs:
        levels, blocks = cost.further["levels"], list[Block]()
        needed = sorted({name for level in levels for name in level["needed_budget"]})
        rows = [
            {
                **{header: level[key] for header, key in columns.items()},
                **{
                    f"budget for {name.replace('_', ' ')}": _decimal(
                        level["needed_budget"].get(name)
                    )
                    for name in needed
                },
            }
            for level in levels
        ]
        if rows:
            sizes = populations_table(levels)
            blocks += [Table.of(rows), "Populations from which tables are accurate", sizes]
        blocks += [sentence_of(comparison) for comparison in cost.further["noise_comparison"]]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))
    with suppress(InputRefused, UnreadableInput):
        blocks_of_census, invariants = read_blocks(settings.input.tables, parameters)
        declared = invariants if settings.mechanism.units_are_invariant else None
        yield from noted(redundant_spending(settings, parameters, blocks_of_census, declared))


def summary(run: RunDirectory, settings: DetailedGroupsSettings) -> tuple[str, ...]:
    """What is in the release, and what it cost."""
    measured = sum(n_groups for _, _, n_groups in _groups_of_levels(run, settings))
    plan = universe_plan(run_parameters(run, settings))
    return _summary(f"{measured:,} groups", run.release / files.TIDY_FILE, plan)


def _summary(measured: str, tidy: Path, plan: UniversePlan) -> tuple[str, ...]:
    cost = "infinite" if plan.loss is None else f"{float(plan.loss):.4f}"
    return (
        f"{measured} measured, {parquet.read_metadata(tidy).num_rows:,} rows released",
        f"{plan.symbol} {cost}, unbounded",
    )


def shown(
    run: RunDirectory, settings: DetailedGroupsSettings, stages: Collection[str]
) -> Iterator[Shown]:
    """How many groups were measured, once they are."""
    if "stage 2" in stages:
        table = Table(("region type", "level", "groups"), tuple(_groups_of_levels(run, settings)))
        yield Shown("population-groups", "Population groups measured", table)


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


DETAILED_GROUPS: Product = Product(
    DetailedGroupsSettings,
    plan_of,
    Rules(check_input_of, fits, refuse_settings),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=words_on_costs,
        notes=redundant_spending_of_run,
        certificate=lambda run, settings: facts_of(
            settings, run_parameters(run, settings), run_specification(run)
        ),
        report=report,
        summary=summary,
        shown=shown,
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


def household_plan_of(
    settings: DetailedHouseholdsSettings, run: RunDirectory | None = None
) -> Plan:
    """The plan of a run of households, or by settings and the specification of groups."""
    if run is not None:
        return measured_households.plan_of_run(run, settings)
    parameters = household_ingest.parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    return Plan.of(
        settings,
        household_budget.costs(settings).values(),
        household_statement.statement_of(settings, parameters),
        household_statement.EXACT,
        [
            replace(tabulation_plan(parameters, name), curve=curve_of_change(own, specification))
            for name, own in parameters.of.items()
        ],
        curves=partial(household_budget.curves_of, parameters, specification),
        coverage=settings.mechanism.coverage,
    )


def words_on_household_costs(
    settings: DetailedHouseholdsSettings, plan: Plan
) -> Iterator[Block | Section]:
    """What the budgets of every pass of households buy, tabulation by tabulation."""
    parameters = household_ingest.parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    for cost in plan.costs:
        losses = cost.further["tabulations"].items()
        each = ", ".join(f"{name.upper()} {loss}" for name, loss in losses)
        blocks: list[Block] = [f"{cost.plan.symbol} of each tabulation: {each}"]
        figures = household_budget.household_figures(parameters, specification, cost.name, settings)
        margins = household_report.margins_table(figures)
        blocks += [] if margins is None else [margins]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))


def household_summary(run: RunDirectory, settings: DetailedHouseholdsSettings) -> tuple[str, ...]:
    """What is in a release of households, and what it cost."""
    parameters = household_ingest.run_parameters(run, settings)
    measured = sum(
        groups.num_rows
        for name in parameters.of
        for _, _, groups in household_files.measured_groups(run, parameters, name)
    )
    tidy = run.release / household_files.TIDY_FILE
    return _summary(f"{measured:,} tables of groups", tidy, household_plan(parameters))


DETAILED_HOUSEHOLDS: Product = Product(
    DetailedHouseholdsSettings,
    household_plan_of,
    Rules(household_ingest.check_input_of, refuse=household_budget.refuse_settings),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        budget=words_on_household_costs,
        certificate=household_report.facts_of_run,
        report=household_report.report,
        summary=household_summary,
    ),
    Accuracy(
        read_errors,
        write_household_accuracy,
        truth_files,
        figures=Figures(HOUSEHOLD_KEYS, HOUSEHOLD_FIGURES, facts_of_households),
    ),
    measured_households.measurement_files,
)


def _groups_of_levels(
    run: RunDirectory, settings: DetailedGroupsSettings
) -> list[tuple[str, int, int]]:
    """Region type, level and number of measured groups of every level: public."""
    found = []
    for region_type, level in run_parameters(run, settings).budgets:
        folder = measured_folder(run, region_type, level)
        rows = [parquet.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))]
        found.append((region_type, level, sum(rows)))
    return found


def _decimal(fraction: str | None) -> str | None:
    return None if fraction is None else f"{float(Fraction(fraction)):.6g}"
