"""The plan of a run, and its measurements by the adaptive mechanism, shard by shard.

By Algorithms 2 and 3 of [SafeTabP2025], in a level with budget b and stability s, a group that is
measured by a total only gets noise from b. Every other group is measured twice: its total with
gamma b, and with (1 - gamma) b the table that this noisy total chooses. The noise of a stage that
spends l of the level's budget is the discrete Gaussian of sigma^2 = s / (2 l) under zCDP, the
two-sided geometric of scale s / l under pure DP.

Files of noisy counts are Parquet, one row a group, published once.

`measurements/detailed_groups/<us|pr>/<region type>/<level>/<shard>.parquet`: `region_type`,
`region_id`, `iteration_code` (strings), `table` (int8: 0 total, 1 to 3 sex by age in 4, 9 and 23
bins), `total_only` (bool), `value` (list<int64>, row-major sex by age), `variance` (double, of each
count), `plb` (the part of the level's budget spent on these counts, as `p/q`). Rows are in the
order of region ids, then of iteration codes; every group of the universe has one.

`measurements/detailed_groups_stage_1/...`, in files of these names: `region_id`, `iteration_code`,
`value` (int64, the noisy total), `variance`, `plb`, without the groups that are measured by a total
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..ledger.charging import single_draw
from ..ledger.plan import Measure
from ..noise.distributions import NoiseDraws
from ..products.measurement import with_noise
from ..products.plan import Plan
from ..runs.directory import RunDirectory
from ..runs.stamps import INTEGER_LIST, schema_without_nulls
from .ingest.counts import GroupCounts, read_counts
from .ingest.ingest import (
    Settings,
    Shard,
    chosen_tables,
    counts_file,
    geography_file,
    group_totals_file,
    invariants_file,
    measured_file,
    parameters_folder,
    read_shards,
    run_parameters,
    run_regions,
    run_specification,
    run_universe,
    shards_file,
    shards_of,
    stage_1_file,
    truth_files,
)
from .workload.budgets import LevelNoise, level_budget, level_noise, refuse_missed_margins
from .workload.guarantee import drawn_plans, exact_of, statement_of
from .workload.parameters import Level, Parameters, choose_table
from .workload.tabulations import KEY, NOT_MEASURED, SEX_BY_AGE, TABULATIONS, Tabulation


@dataclass(frozen=True)
class ShardGroups:
    """The groups of a shard: `n_regions` consecutive regions from `start`, each with every
    iteration. A group's position is (region - start) * n_iterations + iteration.

    `total_only` is the mask of the iterations measured by a total only, shape (n_iterations,);
    `counts` are confidential.
    """

    start: int
    n_regions: int
    total_only: np.ndarray
    counts: GroupCounts

    @property
    def is_total_only(self) -> np.ndarray:
        """Mask of the groups measured by a total only, shape (n_groups,)."""
        return np.tile(self.total_only, self.n_regions)

    @property
    def group_of_count(self) -> np.ndarray:
        """Position of the group of each count."""
        region = self.counts.region.astype(np.int64) - self.start
        return region * self.total_only.size + self.counts.iteration


@dataclass(frozen=True)
class MeasuredCounts:
    """Counts of some groups one after the other.

    `table` (n_groups,) int8; `values` holds the cells of that table for each group, for sex by age
    row-major; `offsets` (n_groups + 1,) marks the start of each group's.
    """

    table: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


def measure_totals(groups: ShardGroups, noise: Measure, draws: NoiseDraws) -> np.ndarray:
    """Stage 1: noisy totals of the groups that are not measured by a total only, in their order."""
    totals = true_counts(groups, np.zeros(groups.is_total_only.size, dtype=np.int8)).values
    return with_noise(totals[~groups.is_total_only], noise.noise, draws, noise.part)


def tables_by_totals(
    groups: ShardGroups, noisy_totals: np.ndarray, thresholds: tuple[int, ...]
) -> np.ndarray:
    """The table of each group that its noisy total chose, or its total only; (n_groups,), int8.

    `noisy_totals` are the outcome of `measure_totals`.
    """
    table = np.zeros(groups.is_total_only.size, dtype=np.int8)
    table[~groups.is_total_only] = choose_table(noisy_totals, thresholds)
    return table


def measure_tables(
    groups: ShardGroups,
    table: np.ndarray,
    tabulation: Tabulation,
    noise: LevelNoise,
    draws: NoiseDraws,
) -> MeasuredCounts:
    """The table of each group with noise in all cells, empty ones too; `NOT_MEASURED` groups have
    no table.
    """
    true = true_counts(groups, table, tabulation)
    is_total_only = np.repeat(groups.is_total_only, np.diff(true.offsets))
    values = np.empty_like(true.values)
    for mask, stage in ((is_total_only, noise.total_only), (~is_total_only, noise.stage_2)):
        values[mask] = with_noise(true.values[mask], stage.noise, draws, stage.part)
    return replace(true, values=values)


def true_counts(
    groups: ShardGroups, table: np.ndarray, tabulation: Tabulation = SEX_BY_AGE
) -> MeasuredCounts:
    """The counts without noise, of the tables given for each group; confidential.

    Groups of the table `NOT_MEASURED` have no counts.
    """
    offsets = tabulation.offsets(table)
    group = groups.group_of_count
    is_measured = table[group] != NOT_MEASURED
    group, cell = group[is_measured], groups.counts.cell[is_measured]
    values = np.zeros(offsets[-1], dtype=np.int64)
    where = offsets[group] + tabulation.cell_of[table[group], cell]
    np.add.at(values, where, groups.counts.count[is_measured])
    return MeasuredCounts(table, values, offsets)


ROWS_PER_ROW_GROUP = 1 << 18


MEASURED_SCHEMA = schema_without_nulls(
    **dict.fromkeys(KEY, pa.string()),
    table=pa.int8(),
    total_only=pa.bool_(),
    value=INTEGER_LIST,
    variance=pa.float64(),
    plb=pa.string(),
)
STAGE_1_SCHEMA = schema_without_nulls(
    **dict.fromkeys(KEY[1:], pa.string()),
    value=pa.int64(),
    variance=pa.float64(),
    plb=pa.string(),
)


def names_of(run: RunDirectory, shard: Shard, rows: np.ndarray) -> list[pa.Array]:
    """The columns `KEY` of some groups of a shard, given their positions."""
    universe = run_universe(run, shard.region_type, shard.level)
    ids = run_regions(run, shard.region_type).ids[shard.start : shard.stop]
    region, iteration = np.divmod(rows, len(universe))
    kind = np.zeros_like(rows), [shard.region_type]
    return [_texts(*named) for named in (kind, (region, ids), (iteration, universe.codes))]


def _noise_columns(
    noise: LevelNoise, stages: Sequence[Measure], stage: np.ndarray
) -> tuple[pa.Array, pa.Array]:
    """Variance and spent part of each row, given the position of its stage."""
    variances = np.array([own.variance for own in stages])
    return pa.array(variances[stage]), _texts(stage, [own.part_of(noise.total) for own in stages])


def table_rows(
    names: list[pa.Array],
    noise: LevelNoise,
    measured: MeasuredCounts,
    rows: np.ndarray,
    is_total_only: np.ndarray,
) -> pa.RecordBatch:
    """Noisy counts of the named groups, those in `rows`, with the columns `MEASURED_SCHEMA`."""
    # Groups between them have no counts, so the rows' counts are contiguous.
    offsets = np.append(measured.offsets[rows], measured.offsets[-1])
    values = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(measured.values), type=INTEGER_LIST
    )
    of_noise = _noise_columns(
        noise, [noise.stage_2, noise.total_only], is_total_only.astype(np.int8)
    )
    own = pa.array(measured.table[rows]), pa.array(is_total_only), values
    return pa.record_batch([*names, *own, *of_noise], schema=MEASURED_SCHEMA)


def _texts(codes: np.ndarray, names: Sequence[str] | np.ndarray) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(codes))


def measured_shards(run: RunDirectory, parameters: Parameters) -> list[tuple[str, Shard]]:
    """Every tabulation, with each of its shards."""
    shards = read_shards(run)
    return [
        (name, shard)
        for name, budgets in parameters.budgets.items()
        for shard in shards
        if (shard.region_type, shard.level) in budgets
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
    if not parameters.infinite:
        refuse_missed_margins(parameters, specification)
    universes = [
        replace(drawn, measures=tuple(_measures(run, tabulation, parameters)))
        for tabulation, drawn in zip(
            parameters.tabulations, drawn_plans(parameters, specification), strict=True
        )
    ]
    files = [path for path in parameters_folder(run).rglob("*") if path.is_file()]
    further = group_totals_file(run), invariants_file(run)
    plan = Plan.of(settings, (), statement_of(parameters), exact_of(settings), universes)
    deciding = [geography_file(run), shards_file(run), *files]
    deciding += [path for path in further if path.exists()]
    return plan.decided_by(run, deciding, truth_files(run))


def _measures(
    run: RunDirectory, tabulation: Tabulation, parameters: Parameters
) -> Iterator[Measure]:
    """The measures of every level and stage, none without noise; the number of answers on persons
    depends on the outcome of the first stage.
    """
    for level in () if parameters.infinite else parameters.budgets[tabulation.name]:
        n_answers = None
        if not tabulation.of_persons:
            bounds = parameters.thresholds[tabulation.name][level]
            tables = (chosen_tables(run, shard, bounds) for shard in shards_of(run, *level))
            n_answers = sum(int(tabulation.offsets(table)[-1]) for table in tables)
        for stage in noise_of(run, parameters, tabulation, level).stages:
            yield replace(stage, answers=n_answers)


def noise_of(
    run: RunDirectory, parameters: Parameters, tabulation: Tabulation, level: Level
) -> LevelNoise:
    """The noise of a population group level of a run."""
    own = parameters.of(tabulation.name)
    budget = level_budget(own, tabulation.name, level, run_universe(run, *level))
    return level_noise(budget, tabulation, level, own.total, infinite=own.infinite)


def measure_totals_once(run: RunDirectory, settings: Settings, shard: Shard) -> Path:
    """Stage 1 of a shard, published: the noisy totals that choose the tables of persons.

    Raises like `single_draw`.
    """
    parameters = run_parameters(run, settings)
    noise = noise_of(run, parameters, SEX_BY_AGE, (shard.region_type, shard.level))
    groups = shard_groups(run, shard)
    _, *names = names_of(run, shard, np.flatnonzero(~groups.is_total_only))

    def rows(draws: NoiseDraws) -> pa.RecordBatch:
        totals = measure_totals(groups, noise.stage_1, draws)
        of_noise = _noise_columns(noise, [noise.stage_1], np.zeros(totals.size, dtype=np.int8))
        return pa.record_batch([*names, pa.array(totals), *of_noise], schema=STAGE_1_SCHEMA)

    path, named = stage_1_file(run, shard), (SEX_BY_AGE.what, "stage 1")
    return publish_shard(run, settings, path, shard, named, STAGE_1_SCHEMA, rows)


def measure_tables_once(run: RunDirectory, settings: Settings, name: str, shard: Shard) -> Path:
    """The counts of a tabulation in a shard, published: for every group its chosen table, or its
    total.

    Apart from the confidential counts it reads only the published outcome of stage 1, or the totals
    kept with the run. Raises like `single_draw`.
    """
    tabulation, parameters = TABULATIONS[name], run_parameters(run, settings)
    level = shard.region_type, shard.level
    noise = noise_of(run, parameters, tabulation, level)
    groups = shard_groups(run, shard, by_total_only=tabulation.of_persons)
    reads, thresholds = [], parameters.thresholds[name][level]
    if not tabulation.of_persons:
        table = chosen_tables(run, shard, thresholds)
    elif has_stage_1(run, shard):
        reads = [stage_1_file(run, shard)]
        totals = pq.read_table(reads[0], columns=["value"])["value"].to_numpy()
        table = tables_by_totals(groups, totals, thresholds)
    else:
        table = np.zeros(groups.total_only.size * groups.n_regions, dtype=np.int8)

    # Groups without a table, which occur for households, have no row.
    kept = np.flatnonzero(table != NOT_MEASURED)
    names, is_total_only = names_of(run, shard, kept), groups.is_total_only[kept]

    def rows(draws: NoiseDraws) -> pa.RecordBatch:
        measured = measure_tables(groups, table, tabulation, noise, draws)
        return table_rows(names, noise, measured, kept, is_total_only)

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
    draw, stage = named
    truth = [counts_file(run, shard.region_type, shard.level)]
    seeds = shard.region_type, str(shard.level), shard.name, stage
    with single_draw(run, settings, path, draw, truth=truth, seeds=seeds, reads=reads) as drawing:
        return drawing.publish(schema, map(rows, [drawing.noise]), ROWS_PER_ROW_GROUP)


def shard_groups(run: RunDirectory, shard: Shard, *, by_total_only: bool = True) -> ShardGroups:
    """The groups of a shard and, in confidence, their counts; no group is measured by a total only
    unless `by_total_only`.
    """
    total_only = run_universe(run, shard.region_type, shard.level).total_only & by_total_only
    counts = read_counts(counts_file(run, shard.region_type, shard.level), shard.start, shard.stop)
    return ShardGroups(shard.start, shard.stop - shard.start, total_only, counts)
