"""The plan of a topdown run: its measurements and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....geography.levels import Geolevel, Spine
from ....validation.topdown.spine import unbalanced_paths
from ...census.queries import marginal_query
from ...census.schema import Schema
from ...ledger.plan import Measure, UniversePlan
from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ...runs.errors import BudgetRefused, InputRefused
from ..paths import geography_file, held_file, invariants_file, spine_folder, state_totals_file
from ..settings import TopdownSettings
from ..spine.files import ARRAYS, BLOCKS, GEOUNITS, spine_of
from ..spine.shards import SHARDS, RunUniverse, Shard, shards_of
from ..workload.budget import Budget
from ..workload.costs import check_budget, cost_of, universe_plan
from ..workload.exact_loss import exact_curve, exact_epsilon, paths_of
from ..workload.privacy_curve import curves_of_run
from ..workload.statement import exact_of, statement_of
from .measure import measurement_file, part_of
from .public_answers import refuse_unheld_invariants


def measurement_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The files of noisy measurements that the run publishes, existing or not."""
    return [
        measurement_file(RunUniverse(run, settings, universe), shard)
        for universe in settings.run.universes
        for shard in shards_of(run, universe)
    ]


def plan_of_run(run: RunDirectory, settings: TopdownSettings) -> Plan:
    """The plan of a run, after checking that the measurements cost the declared amount.

    The shares are recomputed along every path from the stored spines, and every record must be
    counted once in each geolevel. Raises BudgetRefused before any noise is drawn, and InputRefused
    where bypassed geounits make the exact epsilon larger than the declared one.
    """
    refuse_unheld_invariants(run, settings)
    universes = []
    for universe in settings.run.universes:
        budget, spine = settings.budget_of(universe), spine_of(run, universe)
        check_budget(budget)
        check_shares_of_spine(spine, universe)
        check_cuts_of_spine(spine, shards_of(run, universe), universe)
        refuse_larger_epsilon(settings, universe, spine)
        universes.append(universe_plan_of(budget, settings.schema_of(universe), spine))
    plan = public_plan(settings, universes)
    counts = [run.histogram(universe) for universe in settings.run.universes]
    return plan.decided_by(run, deciding_files(run, settings), counts)


def public_plan(settings: TopdownSettings, universes: Sequence[UniversePlan] | None = None) -> Plan:
    """The plan by settings alone, where no geounit is bypassed; `universes` come from spines."""
    return Plan.of(
        settings,
        [cost_of(settings, universe) for universe in settings.run.universes],
        statement_of(settings),
        exact_of(settings),
        universes,
        curves=partial(curves_of_run, settings),
    )


def deciding_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The public files that, with the settings, determine the measurements and their noise."""
    spines = [
        spine_folder(run, universe) / name
        for universe in settings.run.universes
        for name in (GEOUNITS, BLOCKS, ARRAYS, SHARDS)
    ]
    held = [held_file(run)] if settings.is_held else []
    return [geography_file(run), invariants_file(run), state_totals_file(run), *held, *spines]


def refuse_larger_epsilon(settings: TopdownSettings, universe: str, spine: Spine) -> None:
    """Raise InputRefused if a declared epsilon under exact accounting is not met on every path."""
    guarantee, budget = settings.budget[universe].guarantee, settings.budget_of(universe)
    if guarantee is None or budget.infinite:
        return
    epsilon, delta = guarantee
    found = exact_epsilon(budget, delta, paths_of(spine))
    if found is None:
        raise InputRefused(
            f"budget.{universe}.accounting: the spine has more kinds of paths than are compared; "
            "set geography.bypass = false, or give rho alone."
        )
    if Fraction(found) > epsilon:
        raise InputRefused(
            f"budget.{universe}.epsilon is {float(epsilon)}, but on the paths of this "
            f"spine the exact epsilon is {found}; set geography.bypass = false, or add "
            f"budget.{universe}.rho, smaller than {budget.total}."
        )


def universe_plan_of(budget: Budget, schema: Schema, spine: Spine) -> UniversePlan:
    """The measurements of a universe on a spine, and the curve over the paths of the spine.

    One changed record moves two answers of a query by one in each geolevel.
    """
    measures = []
    for level in spine.geolevels:
        n_geounits = np.bincount(level.plb_share_code, minlength=len(level.plb_shares)).tolist()
        used = [(share, n) for share, n in zip(level.plb_shares, n_geounits, strict=True) if n]
        for name, query_share in budget.query_shares[level.name].items():
            query = marginal_query(schema, name)
            measures += [
                Measure(
                    part_of(level.name, query.name),
                    None if budget.infinite else budget.noise(share, query_share),
                    share * query_share,
                    level.name,
                    query.name,
                    moved=2,
                    areas=n,
                    answers=query.n_rows * n,
                )
                for share, n in used
                if share * query_share
            ]
    curve = None if budget.infinite else exact_curve(budget, paths_of(spine))
    return replace(universe_plan(budget, tuple(measures)), curve=curve)


def check_shares_of_spine(spine: Spine, universe: str) -> None:
    """Raise BudgetRefused unless the shares along every path add to exactly 1."""
    wrong = unbalanced_blocks(spine.geolevels)
    if wrong.size:
        raise BudgetRefused(
            f"The shares on the path to {spine.names[-1]} {spine.block_geocode[wrong[0]]} of the "
            f"{universe} spine, and to {wrong.size - 1} others, do not add to 1; build the spine "
            "again in a new run directory."
        )


def unbalanced_blocks(geolevels: Sequence[Geolevel]) -> np.ndarray:
    """Positions of the blocks along whose paths the shares do not add to exactly 1, ascending."""
    names = ("parent", "plb_shares", "plb_share_code")
    return unbalanced_paths(*([getattr(level, name) for level in geolevels] for name in names))


def check_cuts_of_spine(spine: Spine, shards: Sequence[Shard], universe: str) -> None:
    """Raise BudgetRefused unless every block, and every geounit of a shard, occurs once.

    A record in two geounits of a geolevel, or a geounit in two shards, would be measured twice and
    charged once.
    """
    blocks = pa.array(spine.block_geocode, pa.string())
    is_once = pc.count_distinct(blocks).as_py() == len(blocks)
    for level in spine.geolevels:
        is_once &= bool((np.diff(level.parent) >= 0).all())
        own = [(shard.start, shard.stop) for shard in shards if shard.geolevel == level.name]
        ends = [0, *(stop for _, stop in own)]
        is_once &= [start for start, _ in own] == ends[:-1] and ends[-1] == len(level)
    if not is_once:
        raise BudgetRefused(
            f"The stored {universe} spine or its shards have a {spine.names[-1]} or a geounit "
            "twice, or lack one; build the spine again in a new run directory."
        )
