"""Drawing the noise of a detailed-groups run, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...ledger.charging import single_draw
from ...noise.draws import NoiseDraws
from ...runs.directory import RunDirectory
from ..ingest.counts import read_counts
from ..ingest.ingest import run_parameters, run_regions, run_universe
from ..paths import Shard, counts_file, measured_file, stage_1_file
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.guarantee import CHARGED_AS
from .charge import has_stage_1, noise_of
from .files import (
    MEASURED_SCHEMA,
    ROWS_PER_ROW_GROUP,
    STAGE_1_SCHEMA,
    GroupNames,
    read_totals,
    table_rows,
    total_rows,
)
from .stages import ShardGroups, measure_tables, measure_totals


def measure_totals_once(run: RunDirectory, settings: DetailedGroupsSettings, shard: Shard) -> Path:
    """Stage 1 of a shard, published: the noisy totals that choose the tables.

    Raises as `single_draw`.
    """
    path = stage_1_file(run, shard)
    parameters = run_parameters(run, settings)
    noise = noise_of(run, parameters, shard.region_type, shard.level).stage_1
    names, groups = named_groups(run, shard)
    return publish_shard(
        run,
        settings,
        path,
        shard,
        CHARGED_AS,
        "stage 1",
        STAGE_1_SCHEMA,
        lambda draws: total_rows(names, noise, measure_totals(groups, noise, draws)),
    )


def measure_tables_once(run: RunDirectory, settings: DetailedGroupsSettings, shard: Shard) -> Path:
    """Stage 2 of a shard, published: every group's total or the table that stage 1 chose.

    Beside the confidential counts it reads the published outcome of stage 1 alone. Raises as
    `single_draw`.
    """
    path = measured_file(run, shard)
    parameters = run_parameters(run, settings)
    noise = noise_of(run, parameters, shard.region_type, shard.level)
    thresholds = parameters.thresholds[shard.region_type, shard.level]
    names, groups = named_groups(run, shard)
    chosen = stage_1_file(run, shard)
    reads = [chosen] if has_stage_1(run, shard) else []
    totals = read_totals(chosen) if reads else np.zeros(0, dtype=np.int64)
    return publish_shard(
        run,
        settings,
        path,
        shard,
        CHARGED_AS,
        "stage 2",
        MEASURED_SCHEMA,
        lambda draws: table_rows(
            names, noise, measure_tables(groups, totals, thresholds, noise, draws)
        ),
        reads,
    )


def publish_shard(
    run: RunDirectory,
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
    path: Path,
    shard: Shard,
    draw: str,
    stage: str,
    schema: pa.Schema,
    rows: Callable[[NoiseDraws], pa.RecordBatch],
    reads: Sequence[Path] = (),
) -> Path:
    """Publish the noisy counts of a shard; see `single_draw`. `stage` names the noise among that
    of the shard where the settings fix a seed.
    """

    def batches(draws: NoiseDraws) -> Iterator[pa.RecordBatch]:
        yield rows(draws)

    truth = [counts_file(run, shard.region_type, shard.level)]
    seeds = shard.region_type, str(shard.level), shard.name, stage
    with single_draw(run, settings, path, draw, truth=truth, seeds=seeds, reads=reads) as drawing:
        return drawing.publish(schema, batches(drawing.noise), ROWS_PER_ROW_GROUP)


def named_groups(
    run: RunDirectory, shard: Shard, *, by_total_only: bool = True
) -> tuple[GroupNames, ShardGroups]:
    """The groups of a shard, their names and, in confidence, their counts; none of them is measured
    by a total only unless `by_total_only`.
    """
    universe = run_universe(run, shard.region_type, shard.level)
    total_only = universe.total_only & by_total_only
    ids = run_regions(run, shard.region_type).ids[shard.start : shard.stop]
    counts = read_counts(counts_file(run, shard.region_type, shard.level), shard.start, shard.stop)
    return (
        GroupNames(shard.region_type, ids, universe.codes, total_only),
        ShardGroups(shard.start, shard.stop - shard.start, total_only, counts),
    )
