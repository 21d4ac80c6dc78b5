"""What a detailed-households run is charged for, and how the noise of its shards is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...ledger.charging import single_draw
from ...products.levels import MeasuredLevel
from ...products.product import Charge
from ...runs.directory import RunDirectory
from ...runs.errors import BudgetRefused
from ..ingest.group_totals import chosen_tables, run_totals
from ..ingest.household_ingest import run_parameters
from ..ingest.ingest import run_regions, run_specification, run_universe
from ..paths import (
    Shard,
    counts_file,
    geography_file,
    group_totals_file,
    household_file,
    parameters_folder,
    read_shards,
    shards_file,
)
from ..settings import DetailedHouseholdsSettings
from ..workload.exact_loss import curve_of_change
from ..workload.households import HouseholdParameters, tabulation_plan
from ..workload.mapping import exact_stability, stability
from ..workload.tabulations import HOUSEHOLD_TABULATIONS
from .files import write_noisy_tables
from .measure import named_groups
from .stages import LevelNoise, StageNoise, measure_known_tables


def measurement_files(run: RunDirectory, parameters: HouseholdParameters) -> list[Path]:
    """All files of noisy counts that the run publishes, there yet or not."""
    return [household_file(run, name, shard) for name, shard in measured_shards(run, parameters)]


def measured_shards(run: RunDirectory, parameters: HouseholdParameters) -> list[tuple[str, Shard]]:
    """Every tabulation with each shard that it measures."""
    return [
        (name, shard)
        for name in parameters.of
        for shard in read_shards(run)
        if parameters.measures(name, shard.region_type, shard.level)
    ]


def tables_of(
    run: RunDirectory, parameters: HouseholdParameters, name: str, shard: Shard
) -> np.ndarray:
    """The table of each group of a shard, by the totals that are kept with the run."""
    return chosen_tables(
        run_totals(run),
        shard,
        run_regions(run, shard.region_type),
        run_universe(run, shard.region_type, shard.level),
        parameters.of[name].thresholds[shard.region_type, shard.level],
    )


def noise_of(
    run: RunDirectory,
    settings: DetailedHouseholdsSettings,
    parameters: HouseholdParameters,
    name: str,
    region_type: str,
    level: int,
) -> StageNoise:
    """The noise of a level of a tabulation, which spends all of its budget."""
    own = parameters.of[name]
    universe = run_universe(run, region_type, level)
    return StageNoise(
        None if settings.privacy.infinite else own.budget_of(region_type, level),
        stability(universe, own.max_race_codes),
        own.is_pure,
        f"{name}/{region_type}/{level}",
    )


def charge_of(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Charge:
    """What a run is charged for, once what will be drawn is seen to cost no more.

    Raises BudgetRefused before any noise is drawn.
    """
    parameters, specification = run_parameters(run, settings), run_specification(run)
    draws = []
    for name, own in parameters.of.items():
        levels: list[MeasuredLevel] = []
        for item in own.budgets:
            noise = noise_of(run, settings, parameters, name, item.region_type, item.level)
            if noise.loss is None:
                continue
            universe = run_universe(run, item.region_type, item.level)
            loss = exact_stability(universe, own.max_race_codes) / (
                noise.parameter if noise.is_pure else 2 * noise.parameter
            )
            if loss > item.budget:
                raise BudgetRefused(
                    f"a level of {HOUSEHOLD_TABULATIONS[name].what} would cost {loss} and has a "
                    f"budget of {item.budget}; no noise was drawn, so report this as an error of "
                    "the program"
                )
            n_answers = sum(
                int(HOUSEHOLD_TABULATIONS[name].tabulation.offsets(table)[-1])
                for shard in read_shards(run)
                if (shard.region_type, shard.level) == (item.region_type, item.level)
                for table in [tables_of(run, parameters, name, shard)]
            )
            share = noise.loss / own.total
            levels.append(MeasuredLevel(noise.part, noise.part, share, noise.noise, n_answers))
        curve = None if settings.privacy.infinite else curve_of_change(own, specification)
        draws.append(tabulation_plan(parameters, name, tuple(levels)).draw(curve))
    kept = [path for path in parameters_folder(run).rglob("*") if path.is_file()]
    return Charge(
        draws,
        decided_by=[geography_file(run), shards_file(run), group_totals_file(run), *kept],
        truth=[counts_file(run, shard.region_type, shard.level) for shard in read_shards(run)],
    )


def measure_once(
    run: RunDirectory, settings: DetailedHouseholdsSettings, name: str, shard: Shard
) -> Path:
    """The counts of a tabulation in a shard, published: of every group that has a total.

    Raises as `single_draw`.
    """
    path = household_file(run, name, shard)
    parameters = run_parameters(run, settings)
    noise = noise_of(run, settings, parameters, name, shard.region_type, shard.level)
    table = tables_of(run, parameters, name, shard)
    names, groups = named_groups(run, shard, by_total_only=False)
    tabulation = HOUSEHOLD_TABULATIONS[name]
    with single_draw(
        run,
        settings,
        path,
        tabulation.what,
        truth=[counts_file(run, shard.region_type, shard.level)],
        seeds=(shard.region_type, str(shard.level), shard.name, name),
    ) as drawing:
        return write_noisy_tables(
            path,
            names,
            LevelNoise(noise, noise, noise),
            lambda: measure_known_tables(
                groups, table, tabulation.tabulation, noise, drawing.noise
            ),
            is_private=settings.is_private,
            recording=drawing.recording,
        )
