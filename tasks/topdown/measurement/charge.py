"""Charging a topdown run before any noise is drawn."""

from __future__ import annotations

from pathlib import Path

from spineflow.geography.levels import Spine
from spineflow.tasks.ledger.charging import charge_draws
from spineflow.tasks.ledger.identity import stored_digests
from spineflow.tasks.ledger.ledger import Draw
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import read_shards
from spineflow.tasks.topdown.workload.costs import check_budget, guarantee_of
from spineflow.validation.topdown.shares import unbalanced_paths


def measurement_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The files of noisy measurements that the run publishes, there yet or not."""
    return [
        run.dpqueries(universe, shard.geolevel, shard.name)
        for universe in settings.run.universes
        for shard in read_shards(spine_folder(run, universe))
    ]


def charge_run(run: RunDirectory, settings: TopdownSettings) -> None:
    """Check that what will be measured costs what the settings say, then enter it in the ledger.

    The shares are recomputed along every path from the stored spines. Raises BudgetRefused before
    any noise is drawn.
    """
    budgets = {universe: settings.budget_of(universe) for universe in settings.run.universes}
    for universe, budget in budgets.items():
        check_budget(budget)
        check_shares_of_spine(read_spine(spine_folder(run, universe)), universe)
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
