"""Error of released detailed groups against the confidential truth; the result is confidential too.

For each population group level and each table that its groups received: how many groups there are,
how many are shown, how far the shown totals and cells are from the truth, and what suppression
did: groups of somebody that are not shown, groups of nobody that are. Of households, for each
tabulation, level and table, how far totals and counts are from the truth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...products.comparison import write_errors
from ...runs.directory import RunDirectory
from ..ingest.counts import GroupCounts, read_counts
from ..ingest.household_ingest import run_parameters as household_parameters
from ..ingest.ingest import run_parameters, run_regions, run_universe
from ..measurement.stages import ShardGroups, true_counts
from ..paths import counts_file, read_shards
from ..postprocess.groups import code_positions, counts_of, mask_of
from ..postprocess.run import groups_to_release
from ..release.household_files import measured_groups
from ..release.tables import TABLE_NAMES
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.households import HouseholdParameters
from ..workload.iterations import N_CELLS
from ..workload.mapping import IterationUniverse
from ..workload.regions import RegionDomain
from ..workload.tabulations import NOT_MEASURED, HouseholdTabulation


def has_truth(run: RunDirectory, settings: DetailedGroupsSettings) -> bool:
    """Whether the confidential counts of all levels are still there to compare with.

    A level without regions, such as AIANNH areas where there are none, has no counts.
    """
    return all(
        counts_file(run, item.region_type, item.level).exists()
        for item in run_parameters(run, settings).budgets
        if len(run_regions(run, item.region_type))
    )


def write_accuracy(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """Write the errors of every level to the confidential folder of the run."""
    table = pa.Table.from_pylist(list(_errors(run, settings)))
    write_errors(run, table)


def level_errors(
    groups: pa.Table, position: np.ndarray, total_only: np.ndarray, truth: GroupCounts
) -> Iterator[dict[str, object]]:
    """Errors of one level by the table that its groups have.

    Args:
        groups: columns `COUNTED`, suppressed groups included.
        position: of each group among the level's regions and iterations, region by region.
        total_only: mask of the level's iterations that are measured by a total only.
        truth: the level's confidential counts.

    Yields for each table: `groups`, `shown`; mean absolute error, mean error and 95th percentile
    of the absolute error of shown totals; mean absolute error of shown cells;
    `somebody_suppressed` (groups of somebody that are not shown) with the mean size of those
    groups; and `nobody_shown`.
    """
    n_regions = -(-position.size // max(1, total_only.size))
    table = np.zeros(position.size, dtype=np.int8)
    table[position] = groups["table"].to_numpy()
    true = true_counts(ShardGroups(0, n_regions, total_only, truth), table)
    sums = np.concatenate([[0], np.cumsum(true.values)])
    true_total = (sums[true.offsets[1:]] - sums[true.offsets[:-1]])[position]
    counts, offsets = counts_of(groups)
    is_shown = ~mask_of(groups, "is_suppressed")
    total = groups["total"].fill_null(0).to_numpy()
    for number, name in enumerate(TABLE_NAMES):
        own = groups["table"].to_numpy() == number
        shown, hidden = own & is_shown, own & ~is_shown
        error = (total - true_total)[shown]
        cells = np.arange(N_CELLS[number])
        cell_error = (
            counts[offsets[:-1][shown][:, None] + cells]
            - true.values[true.offsets[:-1][position[shown]][:, None] + cells]
        )
        lost = true_total[hidden & (true_total > 0)]
        yield {
            "table": name,
            "groups": int(own.sum()),
            "shown": int(shown.sum()),
            "mean_absolute_error": _mean(np.abs(error)),
            "mean_error": _mean(error),
            "percentile_95": float(np.quantile(np.abs(error), 0.95)) if error.size else None,
            "mean_absolute_cell_error": _mean(np.abs(cell_error)),
            "somebody_suppressed": int(lost.size),
            "mean_size_suppressed": _mean(lost),
            "nobody_shown": int((shown & (true_total == 0)).sum()),
        }


def has_household_truth(run: RunDirectory, settings: DetailedHouseholdsSettings) -> bool:
    """The same of a run of households."""
    return all(
        counts_file(run, shard.region_type, shard.level).exists() for shard in read_shards(run)
    )


def write_household_accuracy(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """The same of a run of households, by tabulation and level."""
    rows = list(_household_errors(run, household_parameters(run, settings)))
    write_errors(run, pa.Table.from_pylist(rows))


def table_errors(
    groups: pa.Table, position: np.ndarray, truth: ShardGroups, tabulation: HouseholdTabulation
) -> Iterator[dict[str, object]]:
    """Errors of a level's measured groups, by the table that they have.

    `position` (n_groups,) is that of each among all regions and iterations of `truth`.
    """
    table = np.full(truth.is_total_only.size, NOT_MEASURED, dtype=np.int8)
    table[position] = groups["table"].to_numpy()
    true = true_counts(truth, table, tabulation.tabulation)
    counts, offsets = counts_of(groups)
    for number, name in enumerate(tabulation.names):
        own = np.flatnonzero(groups["table"].to_numpy() == number)
        if not own.size:
            continue
        cells = np.arange(tabulation.tabulation.n_cells[number])
        error = (
            counts[offsets[own][:, None] + cells]
            - true.values[true.offsets[position[own]][:, None] + cells]
        )
        of_total = error.sum(axis=1)
        yield {
            "table": name,
            "groups": own.size,
            "mean_absolute_error": float(np.abs(of_total).mean()),
            "mean_error": float(of_total.mean()),
            "mean_absolute_cell_error": float(np.abs(error).mean()),
        }


def _household_errors(
    run: RunDirectory, parameters: HouseholdParameters
) -> Iterator[dict[str, object]]:
    for tabulation, _ in parameters.tables():
        for region_type, level, groups in measured_groups(run, parameters, tabulation.name):
            universe, regions = run_universe(run, region_type, level), run_regions(run, region_type)
            counts = read_counts(counts_file(run, region_type, level), 0, len(regions))
            total_only = np.zeros(len(universe), dtype=bool)
            truth = ShardGroups(0, len(regions), total_only, counts)
            for row in table_errors(
                groups, _positions(groups, regions, universe), truth, tabulation
            ):
                yield {
                    "tabulation": tabulation.name,
                    "region_type": region_type,
                    "level": level,
                    **row,
                }


def _errors(run: RunDirectory, settings: DetailedGroupsSettings) -> Iterator[dict[str, object]]:
    budgets = run_parameters(run, settings).budgets
    for item, groups in zip(budgets, groups_to_release(run, settings), strict=True):
        universe = run_universe(run, item.region_type, item.level)
        regions = run_regions(run, item.region_type)
        if not len(regions):
            continue
        truth = read_counts(counts_file(run, item.region_type, item.level), 0, len(regions))
        position = _positions(groups, regions, universe)
        for row in level_errors(groups, position, universe.total_only, truth):
            yield {"region_type": item.region_type, "level": item.level, **row}


def _positions(groups: pa.Table, regions: RegionDomain, universe: IterationUniverse) -> np.ndarray:
    """Of each group among a level's regions and iterations, region by region."""
    region = code_positions(groups, "region_id", regions.ids.tolist())
    iteration = code_positions(groups, "iteration_code", universe.codes.tolist())
    return region * len(universe) + iteration


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
