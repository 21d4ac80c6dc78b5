"""Detailed groups as products: SafeTab-P's adaptive tables of persons for race and ethnicity
groups, and SafeTab-H's of households by the group of the householder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ...validation.detailed_groups.run_checks import check_privacy, run_checks
from ..pages.document import Block, Section
from ..products.comparison import read_errors
from ..products.plan import Plan
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words, format_notes
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..tables.findings import UnreadableInput
from .ingest.ingest import Settings, check_input_of, parameters_of, truth_files
from .ingest.inputs import AcceptedGroups, read_blocks
from .measurement import measurement_files, plan_of_run
from .postprocess import redundant_spending, redundant_spending_of_run
from .release.accuracy import (
    FIGURES,
    HOUSEHOLD_FIGURES,
    HOUSEHOLD_KEYS,
    KEYS,
    comparison_facts,
    write_accuracy,
)
from .release.budget import costs_of, curves_of, level_figures, refuse_settings
from .release.report import certificate_facts, margins_table, report
from .settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .workload.budgets import format_percent
from .workload.guarantee import drawn_plans, exact_of, statement_of
from .workload.parameters import read_specification


def check_settings_against_input(
    settings: DetailedGroupsSettings, accepted: AcceptedGroups
) -> Iterator[Block]:
    """The budgets of the levels that want a margin of error, and budget that would be spent
    twice.
    """
    parameters = parameters_of(settings)
    figures = level_figures(parameters, read_specification(settings.input.parameters))
    wanted = margins_table([item for item in figures if item["margin_wanted"] is not None])
    if wanted is not None:
        yield wanted
    yield from format_notes(
        redundant_spending(settings, parameters, accepted.blocks, accepted.invariants)
    )


def plan_of(settings: Settings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and the specification of groups."""
    if run is not None:
        return plan_of_run(run, settings)
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    return Plan.of(
        settings,
        costs_of(parameters, specification).values(),
        statement_of(parameters),
        exact_of(settings),
        drawn_plans(parameters, specification),
        curves=partial(curves_of, parameters, specification),
        coverage=parameters.coverage,
    )


def words_on_costs(settings: Settings, plan: Plan) -> Iterator[Block | Section]:
    """The accuracy that the budgets of every pass buy; of persons also budget spent twice."""
    parameters = parameters_of(settings)
    percent = format_percent(parameters.coverage)
    for cost in plan.costs:
        blocks: list[Block] = []
        if len(parameters.budgets) > 1:
            losses = cost.further["tabulations"].items()
            each = ", ".join(f"{name.upper()} {loss}" for name, loss in losses)
            blocks.append(f"{cost.plan.symbol} of each tabulation: {each}")
        margins = margins_table(cost.further["levels"])
        if margins is not None:
            blocks += [f"Margins hold with a probability of {percent} %.", margins]
        yield Section(f"Levels of {cost.plan.universe}", tuple(blocks))
    if isinstance(settings, DetailedGroupsSettings):
        with suppress(InputRefused, UnreadableInput):
            public = read_blocks(settings.input.tables, parameters)
            yield from format_notes(redundant_spending(settings, parameters, *public))


WORDS = Words(budget=words_on_costs, certificate=certificate_facts, report=report)


def _product(model: type[Settings], rules: Rules, words: Words, figures: Figures) -> Product:
    return Product(
        model,
        plan_of,
        rules,
        Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
        words,
        Accuracy(read_errors, write_accuracy, truth_files, figures=figures),
        measurement_files,
    )


DETAILED_GROUPS = _product(
    DetailedGroupsSettings,
    Rules(check_input_of, check_settings_against_input, refuse_settings),
    replace(WORDS, notes=redundant_spending_of_run),
    Figures(KEYS, FIGURES, comparison_facts),
)
DETAILED_HOUSEHOLDS = _product(
    DetailedHouseholdsSettings,
    Rules(check_input_of, refuse=refuse_settings),
    WORDS,
    Figures(HOUSEHOLD_KEYS, HOUSEHOLD_FIGURES, comparison_facts),
)
