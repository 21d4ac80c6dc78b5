"""Detailed groups as products: SafeTab-P's adaptive tables of persons for race and ethnicity
groups, and SafeTab-H's of households by the group of the householder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pyarrow import parquet

from ...validation.detailed_groups.run_checks import check_privacy, run_checks
from ..pages.document import Block, Section
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words, format_notes
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..tables.findings import UnreadableInput
from .ingest.ingest import Settings, check_input_of, parameters_of, run_parameters
from .ingest.inputs import AcceptedGroups, read_blocks
from .measurement.measure import measured_shards, measurement_files, plan_of_run
from .paths import measured_file, truth_files
from .postprocess.run import redundant_spending, redundant_spending_of_run
from .release import accuracy
from .release.accuracy import FIGURES, HOUSEHOLD_FIGURES, HOUSEHOLD_KEYS, KEYS, write_accuracy
from .release.budget import costs, curves_of, level_figures, refuse_settings
from .release.files import TIDY_FILES
from .release.report import facts_of_run, margins_table, report
from .settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .workload.budgets import format_percent
from .workload.exact_loss import curve_of_change
from .workload.guarantee import exact_of, pass_plan, statement_of, tabulation_plan
from .workload.parameters import read_specification


def check_settings_against_input(
    settings: DetailedGroupsSettings, accepted: AcceptedGroups
) -> Iterator[Block]:
    """The budgets of the levels that want a margin of error, and budget that would be spent
    twice.
    """
    parameters = parameters_of(settings)
    figures = level_figures(parameters, read_specification(settings.input.parameters))
    wanted = margins_table(item for item in figures if item.wanted is not None)
    if wanted is not None:
        yield wanted
    declared = accepted.invariants if settings.mechanism.units_are_invariant else None
    yield from format_notes(
        redundant_spending(settings, parameters.first, accepted.blocks, declared)
    )


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


def words_on_costs(settings: Settings, plan: Plan) -> Iterator[Block | Section]:
    """The accuracy that the budgets of every pass buy; of persons also budget spent twice."""
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    percent = format_percent(parameters.first.wanted.coverage)
    for cost in plan.costs:
        blocks: list[Block] = []
        if len(parameters.of) > 1:
            losses = cost.further["tabulations"].items()
            each = ", ".join(f"{name.upper()} {loss}" for name, loss in losses)
            blocks.append(f"{cost.plan.symbol} of each tabulation: {each}")
        margins = margins_table(level_figures(parameters, specification, cost.name))
        if margins is not None:
            blocks += [f"Margins hold with a probability of {percent} %.", margins]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))
    if isinstance(settings, DetailedGroupsSettings):
        with suppress(InputRefused, UnreadableInput):
            blocks_of_census, invariants = read_blocks(settings.input.tables, parameters.first)
            declared = invariants if settings.mechanism.units_are_invariant else None
            yield from format_notes(
                redundant_spending(settings, parameters.first, blocks_of_census, declared)
            )


def summary(run: RunDirectory, settings: Settings) -> tuple[str, ...]:
    """Size and cost of the release."""
    parameters = run_parameters(run, settings)
    files = (measured_file(run, *part) for part in measured_shards(run, parameters))
    measured = sum(parquet.read_metadata(file).num_rows for file in files)
    what = "groups" if parameters.records == "persons" else "tables of groups"
    plan, tidy = pass_plan(parameters), run.release / TIDY_FILES[parameters.records]
    cost = "infinite" if plan.loss is None else f"{float(plan.loss):.4f}"
    return (
        f"{measured:,} {what} measured, {parquet.read_metadata(tidy).num_rows:,} rows released",
        f"{plan.symbol} {cost}, unbounded",
    )


CHECKS = Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy)

DETAILED_GROUPS: Product = Product(
    DetailedGroupsSettings,
    plan_of,
    Rules(check_input_of, check_settings_against_input, refuse_settings),
    CHECKS,
    Words(
        budget=words_on_costs,
        notes=redundant_spending_of_run,
        certificate=facts_of_run,
        report=report,
        summary=summary,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        truth_files,
        figures=Figures(KEYS, FIGURES, accuracy.facts_of_run),
    ),
    measurement_files,
)
DETAILED_HOUSEHOLDS: Product = Product(
    DetailedHouseholdsSettings,
    plan_of,
    Rules(check_input_of, refuse=refuse_settings),
    CHECKS,
    Words(budget=words_on_costs, certificate=facts_of_run, report=report, summary=summary),
    Accuracy(
        read_errors,
        write_accuracy,
        truth_files,
        figures=Figures(HOUSEHOLD_KEYS, HOUSEHOLD_FIGURES, accuracy.facts_of_run),
    ),
    measurement_files,
)
