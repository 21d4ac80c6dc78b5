"""The plan of a detailed-groups run: what it measures and is charged for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from ...ledger.plan import UniversePlan
from ...products.plan import ExactFact, Plan
from ...products.statement import Statement
from ...runs.directory import RunDirectory
from ...runs.errors import BudgetRefused
from ..ingest.ingest import run_parameters, run_specification, run_universe
from ..paths import (
    Shard,
    geography_file,
    invariants_file,
    measured_file,
    parameters_folder,
    read_shards,
    shards_file,
    stage_1_file,
    truth_files,
)
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.exact_loss import curve_of_change
from ..workload.guarantee import universe_plan
from ..workload.mapping import exact_stability, stability
from ..workload.mechanism import MechanismParameters
from ..workload.statement import exact_of, statement_of
from ..workload.wanted_margins import refuse_missed_margins
from .stages import LevelNoise, level_noise


def measurement_files(run: RunDirectory, _settings: DetailedGroupsSettings) -> list[Path]:
    """All files of noisy counts that the run publishes, there yet or not."""
    shards = read_shards(run)
    stage_1 = [stage_1_file(run, shard) for shard in shards if has_stage_1(run, shard)]
    return stage_1 + [measured_file(run, shard) for shard in shards]


def has_stage_1(run: RunDirectory, shard: Shard) -> bool:
    """Whether any group of a shard is not measured by a total only."""
    return not run_universe(run, shard.region_type, shard.level).total_only.all()


def plan_of_run(run: RunDirectory, settings: DetailedGroupsSettings) -> Plan:
    """The plan of a run, once what will be drawn is seen to cost no more.

    Raises BudgetRefused before any noise is drawn, and InputRefused for a budget that misses the
    margin which is wanted of it.
    """
    parameters, specification = run_parameters(run, settings), run_specification(run)
    measures = []
    if not parameters.infinite:
        refuse_missed_margins(parameters, specification)
    for level, budget in {} if parameters.infinite else parameters.budgets.items():
        noise = noise_of(run, parameters, *level)
        universe = run_universe(run, *level)
        check_loss(noise, exact_stability(universe, parameters.max_race_codes), budget)
        measures += [stage.measure(parameters.total) for stage in noise.stages]
    invariants = [invariants_file(run)] if settings.mechanism.units_are_invariant else []
    curve = curve_of_change(parameters, specification)
    drawn = replace(universe_plan(parameters, measures=tuple(measures)), curve=curve)
    statement = statement_of(settings, parameters)
    return plan_for(run, settings, [drawn], statement, exact_of(settings), *invariants)


def plan_for(
    run: RunDirectory,
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
    universes: Iterable[UniversePlan],
    statement: Statement,
    exact: Iterable[ExactFact],
    *further: Path,
) -> Plan:
    """A plan that a run's geography, shards, parameters and `further` decide."""
    parameters = [path for path in parameters_folder(run).rglob("*") if path.is_file()]
    plan = Plan.of(settings, (), statement, exact, universes)
    deciding = [geography_file(run), shards_file(run), *parameters, *further]
    return plan.decided_by(run, deciding, truth_files(run))


def check_loss(noise: LevelNoise, n_groups: int, budget: Fraction) -> None:
    """Refuse noise under which a person in `n_groups` groups of a level loses more than its budget.

    Raises BudgetRefused.
    """
    total_only, stage_1, stage_2 = (stage.loss_of_count for stage in noise.stages)
    loss = n_groups * max(total_only, stage_1 + stage_2)
    refuse_larger_loss(loss, budget, "a population group level")


def refuse_larger_loss(loss: Fraction, budget: Fraction, what: str) -> None:
    """Raise BudgetRefused if `what` would cost more than its budget."""
    if loss > budget:
        raise BudgetRefused(
            f"{what} would cost {loss} and has a budget of {budget}; no noise was drawn, so report "
            "this as an error of the program"
        )


def noise_of(
    run: RunDirectory, parameters: MechanismParameters, region_type: str, level: int
) -> LevelNoise:
    """The noise of a population group level of a run."""
    universe = run_universe(run, region_type, level)
    return level_noise(
        parameters,
        parameters.budgets[region_type, level],
        stability(universe, parameters.max_race_codes),
        level=f"{region_type}/{level}",
    )
