"""Charging and measuring a topdown run, shard by shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse
from spineflow.geography.levels import Spine
from spineflow.tasks.answers.noisy import write_constraints
from spineflow.tasks.census.histograms import sum_histogram
from spineflow.tasks.census.invariants import inhabitable, read_invariants, read_state_totals
from spineflow.tasks.ledger.charging import charge_draws, random_source, single_draw
from spineflow.tasks.ledger.identity import stored_digests
from spineflow.tasks.ledger.ledger import Draw
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.topdown.measurement.constraints import constraints_of_shard
from spineflow.tasks.topdown.measurement.measure import MeasuredShard, measure_shard
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import Shard, read_shards
from spineflow.tasks.topdown.workload.costs import check_budget, guarantee_of
from spineflow.validation.topdown.shares import unbalanced_paths


def measurement_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The files of noisy measurements that the run publishes, there yet or not."""
    return [
        run.dpqueries(universe, shard.geolevel, shard.name)
        for universe in settings.run.universes
        for shard in read_shards(run.spine(universe))
    ]


def charge_run(run: RunDirectory, settings: TopdownSettings) -> None:
    """Check that what will be measured costs what the settings say, then enter it in the ledger.

    The shares are recomputed along every path from the stored spines. Raises BudgetRefused before
    any noise is drawn.
    """
    budgets = {universe: settings.budget_of(universe) for universe in settings.run.universes}
    for universe, budget in budgets.items():
        check_budget(budget)
        check_shares_of_spine(read_spine(run.spine(universe)), universe)
    charge_draws(
        run,
        settings,
        draws=[
            Draw(universe, budget.mechanism, guarantee_of(budget))
            for universe, budget in budgets.items()
        ],
        inputs=stored_digests(run),
        files=measurement_files(run, settings),
    )


def check_shares_of_spine(spine: Spine, universe: str) -> None:
    """Raise BudgetRefused unless the shares along every path add to exactly 1."""
    wrong = unbalanced_paths(
        [level.parent for level in spine.geolevels],
        [level.plb_shares for level in spine.geolevels],
        [level.plb_share_code for level in spine.geolevels],
    )
    if wrong.size:
        raise BudgetRefused(
            f"The shares on the path to block {spine.block_geocode[wrong[0]]} of the {universe} "
            f"spine, and to {wrong.size - 1} others, do not add to 1; build the spine again in a "
            "new run directory."
        )


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of files."""
    spine = read_spine(run.spine(universe))
    schema = settings.schema_of(universe)
    invariants = read_invariants(run.invariants, with_geocodes=False)
    row_of_block = np.flatnonzero(inhabitable(invariants))[spine.block_row]
    totals = read_state_totals(run.state_totals)
    zeros = [zero.name for zero in settings.workload[universe].structural_zeros]
    shards = read_shards(run.spine(universe))
    for shard in shards:
        blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
        below = invariants.iloc[row_of_block[blocks]]
        rows = constraints_of_shard(spine, shard, schema, below, totals, zeros)
        write_constraints(run.constraints(universe, shard.geolevel, shard.name), rows)
    return len(shards)


def measure_once(run: RunDirectory, settings: TopdownSettings, universe: str, shard: Shard) -> None:
    """Measure and publish one shard, from the system's randomness unless the settings fix a seed.

    Raises BudgetRefused if the ledger knows that this run has published the shard before.
    """
    path = run.dpqueries(universe, shard.geolevel, shard.name)
    spine = read_spine(run.spine(universe))
    schema = settings.schema_of(universe)
    level = spine.geolevel(shard.geolevel)
    part = slice(shard.start, shard.stop)
    measured = MeasuredShard(
        shard.geolevel,
        shard_histograms(run, universe, spine, shard, schema.n_cells),
        level.geocode[part],
        level.plb_shares,
        level.plb_share_code[part],
    )
    source = random_source(settings, universe, shard.geolevel, shard.name)
    with single_draw(run, settings, path):
        measure_shard(
            path,
            measured,
            settings.budget_of(universe),
            schema,
            source,
            is_private=settings.is_private,
        )


def shard_histograms(
    run: RunDirectory, universe: str, spine: Spine, shard: Shard, n_cells: int
) -> sparse.csr_array:
    """Histograms of a shard's geounits, shape `(n_geounits, n_cells)`.

    Of the block histograms only the row groups with blocks of the shard are read. Raises ValueError
    if a block with records is not on the spine, when the root is asked for.
    """
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    return sum_histogram(
        run.histogram(universe),
        spine.block_geocode[blocks],
        spine.ancestors(shard.geolevel, blocks) - shard.start,
        n_groups=shard.stop - shard.start,
        n_cells=n_cells,
        among_others=blocks.stop - blocks.start < spine.n_blocks,
    )
