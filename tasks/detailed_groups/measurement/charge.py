"""What a detailed-groups run is charged for before any noise is drawn."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from ...products.levels import MeasuredLevel
from ...products.product import Charge
from ...runs.directory import RunDirectory
from ...runs.errors import BudgetRefused
from ..ingest.ingest import (
    run_parameters,
    run_specification,
    run_universe,
)
from ..paths import (
    Shard,
    counts_file,
    geography_file,
    invariants_file,
    measured_file,
    parameters_folder,
    read_shards,
    shards_file,
    stage_1_file,
)
from ..settings import DetailedGroupsSettings
from ..workload.exact_loss import curve_of_change
from ..workload.guarantee import noise_plan
from ..workload.mapping import exact_stability, stability
from ..workload.mechanism import MechanismParameters
from ..workload.wanted_margins import refuse_missed_margins
from .stages import (
    LevelNoise,
    level_noise,
)


def measurement_files(run: RunDirectory) -> list[Path]:
    """All files of noisy counts that the run publishes, there yet or not."""
    shards = read_shards(run)
    stage_1 = [stage_1_file(run, shard) for shard in shards if has_stage_1(run, shard)]
    return stage_1 + [measured_file(run, shard) for shard in shards]


def has_stage_1(run: RunDirectory, shard: Shard) -> bool:
    """Whether any group of a shard is not measured by a total only."""
    return not run_universe(run, shard.region_type, shard.level).total_only.all()


def charge_of(run: RunDirectory, settings: DetailedGroupsSettings) -> Charge:
    """What a run is charged for, once what will be drawn is seen to cost no more.

    Raises BudgetRefused before any noise is drawn, and InputRefused for a budget that misses the
    margin which is wanted of it.
    """
    parameters = run_parameters(run, settings)
    curve = None
    if not settings.privacy.infinite:
        specification = run_specification(run)
        refuse_missed_margins(parameters, specification)
        curve = curve_of_change(parameters, specification)
    levels: list[MeasuredLevel] = []
    for item in parameters.budgets:
        noise = noise_of(run, settings, parameters, item.region_type, item.level)
        universe = run_universe(run, item.region_type, item.level)
        check_loss(noise, exact_stability(universe, parameters.max_race_codes), item.budget)
        levels += [
            MeasuredLevel(stage.part, stage.part, stage.loss / parameters.total, stage.noise)
            for stage in noise.stages
            if stage.loss is not None
        ]
    return Charge(
        [noise_plan(parameters, levels=tuple(levels)).draw(curve)],
        decided_by=deciding_files(run, settings),
        truth=[counts_file(run, shard.region_type, shard.level) for shard in read_shards(run)],
    )


def deciding_files(run: RunDirectory, settings: DetailedGroupsSettings) -> list[Path]:
    """The public files that, with the settings, decide what is measured and with which noise."""
    parameters = [path for path in parameters_folder(run).rglob("*") if path.is_file()]
    invariants = [invariants_file(run)] if settings.mechanism.units_are_invariant else []
    return [geography_file(run), shards_file(run), *parameters, *invariants]


def check_loss(noise: LevelNoise, n_groups: int, budget: Fraction) -> None:
    """Refuse noise under which a person in `n_groups` groups of a level loses more than its budget.

    The loss is found from the parameters that the noise is drawn with: 1 / (2 sigma^2) for each
    count that a person changes, or 1 / scale under pure DP. Raises BudgetRefused.
    """
    if noise.total_only.loss is None:
        return
    losses = [
        1 / (stage.parameter if stage.is_pure else 2 * stage.parameter) for stage in noise.stages
    ]
    loss = n_groups * max(losses[0], losses[1] + losses[2])
    if loss > budget:
        raise BudgetRefused(
            f"a population group level would cost {loss} and has a budget of {budget}; no noise "
            "was drawn, so report this as an error of the program"
        )


def noise_of(
    run: RunDirectory,
    settings: DetailedGroupsSettings,
    parameters: MechanismParameters,
    region_type: str,
    level: int,
) -> LevelNoise:
    """The noise of a population group level of a run."""
    universe = run_universe(run, region_type, level)
    return level_noise(
        parameters,
        parameters.budget_of(region_type, level),
        stability(universe, parameters.max_race_codes),
        level=f"{region_type}/{level}",
        infinite=settings.privacy.infinite,
    )
