"""Drawing the noise of a detailed-groups run, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from ...ledger.charging import FileDraw, single_draw
from ...runs.directory import RunDirectory
from ..ingest.counts import read_counts
from ..ingest.ingest import run_parameters, run_regions, run_universe
from ..paths import Shard, counts_file, measured_file, stage_1_file
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.guarantee import CHARGED_AS
from .charge import has_stage_1, noise_of
from .files import GroupNames, read_totals, write_noisy_tables, write_noisy_totals
from .stages import ShardGroups, measure_tables, measure_totals


def measure_totals_once(run: RunDirectory, settings: DetailedGroupsSettings, shard: Shard) -> Path:
    """Stage 1 of a shard, published: the noisy totals that choose the tables.

    Raises as `single_draw`.
    """
    path = stage_1_file(run, shard)
    parameters = run_parameters(run, settings)
    noise = noise_of(run, parameters, shard.region_type, shard.level).stage_1
    names, groups = named_groups(run, shard)
    with draw_of_shard(run, settings, path, shard, CHARGED_AS, "stage 1") as drawing:
        return write_noisy_totals(
            path,
            names,
            noise,
            lambda: measure_totals(groups, noise, drawing.noise),
            is_private=settings.is_private,
            recording=drawing.recording,
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
    with draw_of_shard(run, settings, path, shard, CHARGED_AS, "stage 2", reads) as drawing:
        return write_noisy_tables(
            path,
            names,
            noise,
            lambda: measure_tables(groups, totals, thresholds, noise, drawing.noise),
            is_private=settings.is_private,
            recording=drawing.recording,
        )


def draw_of_shard(
    run: RunDirectory,
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
    path: Path,
    shard: Shard,
    draw: str,
    stage: str,
    reads: Sequence[Path] = (),
) -> AbstractContextManager[FileDraw]:
    """The draw of a file of noisy counts of a shard; see `single_draw`. `stage` names the noise
    among that of the shard where the settings fix a seed.
    """
    truth = [counts_file(run, shard.region_type, shard.level)]
    seeds = shard.region_type, str(shard.level), shard.name, stage
    return single_draw(run, settings, path, draw, truth=truth, seeds=seeds, reads=reads)


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
