"""The plan of a run, and drawing its noise shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...ledger.charging import single_draw
from ...ledger.plan import Measure, UniversePlan
from ...noise.draws import NoiseDraws
from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ..ingest.counts import read_counts
from ..ingest.ingest import (
    Settings,
    chosen_tables,
    run_parameters,
    run_regions,
    run_specification,
    run_totals,
    run_universe,
)
from ..paths import (
    Shard,
    counts_file,
    geography_file,
    group_totals_file,
    invariants_file,
    measured_file,
    parameters_folder,
    read_shards,
    shards_file,
    shards_of,
    stage_1_file,
    truth_files,
)
from ..workload.budgets import LevelNoise, level_budget, level_noise, refuse_missed_margins
from ..workload.exact_loss import curve_of_change
from ..workload.guarantee import exact_of, statement_of, tabulation_plan
from ..workload.parameters import MechanismParameters, Parameters
from ..workload.tabulations import TABULATIONS, Tabulation
from .files import (
    MEASURED_SCHEMA,
    ROWS_PER_ROW_GROUP,
    STAGE_1_SCHEMA,
    GroupNames,
    read_totals,
    table_rows,
    total_rows,
)
from .stages import ShardGroups, measure_tables, measure_totals, tables_by_totals


def measured_shards(run: RunDirectory, parameters: Parameters) -> list[tuple[str, Shard]]:
    """Every tabulation, with each of its shards."""
    shards = read_shards(run)
    return [
        (name, shard)
        for name, own in parameters.of.items()
        for shard in shards
        if (shard.region_type, shard.level) in own.budgets
    ]


def measurement_files(run: RunDirectory, settings: Settings) -> list[Path]:
    """All files of noisy counts that the run publishes, existing or not."""
    measured = measured_shards(run, run_parameters(run, settings))
    stage_1 = [
        stage_1_file(run, shard)
        for name, shard in measured
        if TABULATIONS[name].of_persons and has_stage_1(run, shard)
    ]
    return stage_1 + [measured_file(run, name, shard) for name, shard in measured]


def has_stage_1(run: RunDirectory, shard: Shard) -> bool:
    """Whether any group of a shard of persons is not measured by a total only."""
    return not run_universe(run, shard.region_type, shard.level).total_only.all()


def plan_of_run(run: RunDirectory, settings: Settings) -> Plan:
    """The plan of a run, determined by its geography, shards and parameters, and its totals or
    invariants; raises InputRefused for a budget that misses its wanted margin.
    """
    parameters, specification = run_parameters(run, settings), run_specification(run)
    universes: list[UniversePlan] = []
    for tabulation, own in parameters.tables():
        if not own.infinite:
            refuse_missed_margins(own, specification)
        measures = () if own.infinite else tuple(_measures(run, tabulation, own))
        drawn = tabulation_plan(parameters, tabulation.name, measures)
        universes.append(replace(drawn, curve=curve_of_change(own, specification)))
    files = [path for path in parameters_folder(run).rglob("*") if path.is_file()]
    further = group_totals_file(run), invariants_file(run)
    plan = Plan.of(settings, (), statement_of(parameters), exact_of(settings), universes)
    deciding = [geography_file(run), shards_file(run), *files]
    deciding += [path for path in further if path.exists()]
    return plan.decided_by(run, deciding, truth_files(run))


def _measures(
    run: RunDirectory, tabulation: Tabulation, own: MechanismParameters
) -> Iterator[Measure]:
    """The measures of every level and stage; the number of answers on persons depends on the
    outcome of the first stage.
    """
    for level in own.budgets:
        n_answers = None
        if not tabulation.of_persons:
            tables = (known_tables(run, own, shard) for shard in shards_of(run, *level))
            n_answers = sum(int(tabulation.offsets(table)[-1]) for table in tables)
        for stage in noise_of(run, own, tabulation, level).stages:
            yield stage.measure(own.total, n_answers)


def noise_of(
    run: RunDirectory, own: MechanismParameters, tabulation: Tabulation, level: tuple[str, int]
) -> LevelNoise:
    """The noise of a population group level of a run."""
    budget = level_budget(own, level, run_universe(run, *level))
    return level_noise(budget, tabulation, level, infinite=own.infinite)


def known_tables(run: RunDirectory, own: MechanismParameters, shard: Shard) -> np.ndarray:
    """The table of each group of households of a shard, by the totals that the run keeps."""
    return chosen_tables(
        run_totals(run),
        shard,
        run_regions(run, shard.region_type),
        run_universe(run, shard.region_type, shard.level),
        own.thresholds[shard.region_type, shard.level],
    )


def measure_totals_once(run: RunDirectory, settings: Settings, shard: Shard) -> Path:
    """Stage 1 of a shard, published: the noisy totals that choose the tables of persons.

    Raises like `single_draw`.
    """
    tabulation, own = next(run_parameters(run, settings).tables())
    noise = noise_of(run, own, tabulation, (shard.region_type, shard.level)).stage_1
    names, groups = named_groups(run, shard)

    def rows(draws: NoiseDraws) -> pa.RecordBatch:
        return total_rows(names, noise, measure_totals(groups, noise, draws))

    path, named = stage_1_file(run, shard), (tabulation.what, "stage 1")
    return publish_shard(run, settings, path, shard, named, STAGE_1_SCHEMA, rows)


def measure_tables_once(run: RunDirectory, settings: Settings, name: str, shard: Shard) -> Path:
    """The counts of a tabulation in a shard, published: for every group its chosen table, or its
    total.

    Apart from the confidential counts it reads only the published outcome of stage 1, or the totals
    kept with the run. Raises like `single_draw`.
    """
    tabulation, own = TABULATIONS[name], run_parameters(run, settings).of[name]
    noise = noise_of(run, own, tabulation, (shard.region_type, shard.level))
    names, groups = named_groups(run, shard, by_total_only=tabulation.of_persons)
    reads = []
    if tabulation.of_persons:
        reads = [stage_1_file(run, shard)] if has_stage_1(run, shard) else []
        totals = read_totals(reads[0]) if reads else np.zeros(0, dtype=np.int64)
        thresholds = own.thresholds[shard.region_type, shard.level]
        table = tables_by_totals(groups, totals, thresholds)
    else:
        table = known_tables(run, own, shard)

    def rows(draws: NoiseDraws) -> pa.RecordBatch:
        return table_rows(names, noise, measure_tables(groups, table, tabulation, noise, draws))

    named = tabulation.what, "stage 2" if tabulation.of_persons else name
    path = measured_file(run, name, shard)
    return publish_shard(run, settings, path, shard, named, MEASURED_SCHEMA, rows, reads)


def publish_shard(
    run: RunDirectory,
    settings: Settings,
    path: Path,
    shard: Shard,
    named: tuple[str, str],
    schema: pa.Schema,
    rows: Callable[[NoiseDraws], pa.RecordBatch],
    reads: Sequence[Path] = (),
) -> Path:
    """Publish the noisy counts of a shard; see `single_draw`. `named` has the charged draw and a
    name for the noise within the shard, used where the settings fix a seed.
    """

    def batches(draws: NoiseDraws) -> Iterator[pa.RecordBatch]:
        yield rows(draws)

    draw, stage = named
    truth = [counts_file(run, shard.region_type, shard.level)]
    seeds = shard.region_type, str(shard.level), shard.name, stage
    with single_draw(run, settings, path, draw, truth=truth, seeds=seeds, reads=reads) as drawing:
        return drawing.publish(schema, batches(drawing.noise), ROWS_PER_ROW_GROUP)


def named_groups(
    run: RunDirectory, shard: Shard, *, by_total_only: bool = True
) -> tuple[GroupNames, ShardGroups]:
    """The groups of a shard, their names and, in confidence, their counts; no group is measured by
    a total only unless `by_total_only`.
    """
    universe = run_universe(run, shard.region_type, shard.level)
    total_only = universe.total_only & by_total_only
    ids = run_regions(run, shard.region_type).ids[shard.start : shard.stop]
    counts = read_counts(counts_file(run, shard.region_type, shard.level), shard.start, shard.stop)
    return (
        GroupNames(shard.region_type, ids, universe.codes, total_only),
        ShardGroups(shard.start, shard.stop - shard.start, total_only, counts),
    )
