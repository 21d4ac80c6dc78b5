"""The plan of a detailed-groups run: what it measures and is charged for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...ledger.plan import UniversePlan
from ...products.plan import ExactFact, Plan
from ...products.statement import Statement
from ...runs.directory import RunDirectory
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
from ..workload.mapping import stability
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
    """The plan of a run; raises InputRefused for a budget that misses its wanted margin."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    measures = []
    if not parameters.infinite:
        refuse_missed_margins(parameters, specification)
    for level in () if parameters.infinite else parameters.budgets:
        noise = noise_of(run, parameters, *level)
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
