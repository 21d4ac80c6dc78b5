"""The plan of a detailed-households run, and how the noise of its shards is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...noise.draws import NoiseDraws
from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ..ingest.group_totals import chosen_tables, run_totals
from ..ingest.household_ingest import run_parameters
from ..ingest.ingest import run_regions, run_specification, run_universe
from ..paths import Shard, group_totals_file, household_file, read_shards
from ..settings import DetailedHouseholdsSettings
from ..workload.exact_loss import curve_of_change
from ..workload.household_statement import EXACT, statement_of
from ..workload.households import HouseholdParameters, tabulation_plan
from ..workload.mapping import stability
from ..workload.tabulations import HOUSEHOLD_TABULATIONS
from .charge import plan_for
from .files import MEASURED_SCHEMA, table_rows
from .measure import named_groups, publish_shard
from .stages import LevelNoise, StageNoise, measure_known_tables


def measurement_files(run: RunDirectory, settings: DetailedHouseholdsSettings) -> list[Path]:
    """All files of noisy counts that the run publishes, there yet or not."""
    parameters = run_parameters(run, settings)
    return [household_file(run, name, shard) for name, shard in measured_shards(run, parameters)]


def measured_shards(run: RunDirectory, parameters: HouseholdParameters) -> list[tuple[str, Shard]]:
    """Every tabulation with each shard that it measures."""
    return [
        (name, shard)
        for name in parameters.of
        for shard in read_shards(run)
        if (shard.region_type, shard.level) in parameters.of[name].budgets
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
    run: RunDirectory, parameters: HouseholdParameters, name: str, region_type: str, level: int
) -> StageNoise:
    """The noise of a level of a tabulation, which spends all of its budget."""
    own = parameters.of[name]
    universe = run_universe(run, region_type, level)
    return StageNoise(
        None if own.infinite else own.budgets[region_type, level],
        stability(universe, own.max_race_codes),
        own.is_pure,
        f"{name}/{region_type}/{level}",
    )


def plan_of_run(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Plan:
    """The plan of a run."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    universes = []
    for name, own in parameters.of.items():
        tabulation, measures = HOUSEHOLD_TABULATIONS[name], []
        for level in () if own.infinite else own.budgets:
            noise = noise_of(run, parameters, name, *level)
            n_answers = sum(
                int(tabulation.tabulation.offsets(table)[-1])
                for shard in read_shards(run)
                if (shard.region_type, shard.level) == level
                for table in [tables_of(run, parameters, name, shard)]
            )
            measures.append(noise.measure(own.total, n_answers))
        drawn = tabulation_plan(parameters, name, tuple(measures))
        universes.append(replace(drawn, curve=curve_of_change(own, specification)))
    statement = statement_of(settings, parameters)
    return plan_for(run, settings, universes, statement, EXACT, group_totals_file(run))


def measure_once(
    run: RunDirectory, settings: DetailedHouseholdsSettings, name: str, shard: Shard
) -> Path:
    """The counts of a tabulation in a shard, published: of every group that has a total.

    Raises as `single_draw`.
    """
    path = household_file(run, name, shard)
    parameters = run_parameters(run, settings)
    noise = noise_of(run, parameters, name, shard.region_type, shard.level)
    table = tables_of(run, parameters, name, shard)
    names, groups = named_groups(run, shard, by_total_only=False)
    tabulation, of_level = HOUSEHOLD_TABULATIONS[name], LevelNoise(noise, noise, noise)

    def rows(draws: NoiseDraws) -> pa.RecordBatch:
        measured = measure_known_tables(groups, table, tabulation.tabulation, noise, draws)
        return table_rows(names, of_level, measured)

    return publish_shard(run, settings, path, shard, tabulation.what, name, MEASURED_SCHEMA, rows)
