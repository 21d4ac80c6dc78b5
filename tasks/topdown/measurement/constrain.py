"""From a run's public files to its files of constraints, and what these make vain to measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from ....geography.levels import Spine
from ...answers.noisy import write_constraints
from ...census.census import Universe
from ...census.queries import marginal_query
from ...runs.directory import RunDirectory
from ..paths import constraints_file
from ..settings import TopdownSettings
from ..spine.build import spines_of
from ..spine.files import spine_of
from ..spine.shards import shards_of
from .constraints import WHOLE, LevelUnits, constraints_of_shard, resolved_invariants
from .public_answers import held_invariants, public_answers, units_of_areas, units_of_run


def refuse_unheld_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Raise InputRefused for an invariant that the run's spine cannot hold."""
    for universe in settings.run.universes:
        spine = spine_of(run, universe)
        units = units_of_run(run, settings.compiled_census, spine)
        resolved_invariants(spine, _held(settings, universe), units)


def checked_spines(
    settings: TopdownSettings, areas: pd.DataFrame, invariants: pd.DataFrame
) -> Iterator[tuple[str, Spine, dict[str, dict[str, LevelUnits]]]]:
    """Build the spine of every universe, with how the units of its invariants lie on it.

    `areas` and `invariants` are the frames of `ingest.public_tables`. Raises InputRefused for what
    makes no spine, or one that cannot hold an invariant.
    """
    census = settings.compiled_census
    for universe in settings.run.universes:
        spine = spines_of(settings).spine(universe, (areas, invariants))
        units = units_of_areas(census, spine, areas)
        yield universe, spine, resolved_invariants(spine, _held(settings, universe), units)


def _held(settings: TopdownSettings, universe: str) -> Universe:
    """A universe with the invariants that are held: where areas are estimated alone, their own."""
    census = settings.compiled_census
    declared, last = census.universes[universe], census.geolevels[-1]
    if not settings.blocks_only:
        return declared
    own = tuple(entry for entry in declared.invariants if entry.geolevel == last)
    return replace(declared, invariants=own)


def spending_on_exact_answers(
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    resolved: Mapping[str, Mapping[str, LevelUnits]],
) -> tuple[str, ...]:
    """A sentence for each geolevel with a query that an invariant answers wherever it is measured.

    Such noisy answers change no estimate, since estimates hold the exact ones. `resolved` has the
    units of the invariants that are held, as `resolved_invariants` gives them.
    """
    if settings.privacy.infinite:
        return ()
    schema, budget = settings.schema_of(universe), settings.budget_of(universe)
    held = [
        (resolved[invariant.name], marginal_query(schema, invariant.query))
        for invariant in settings.compiled_census.universes[universe].invariants
        if invariant.name in resolved
    ]
    sentences = []
    for level in spine.geolevels:
        is_measured = np.array([share > 0 for share in level.plb_shares])[level.plb_share_code]
        exact = [
            query
            for units, query in held
            if (units[level.name].kind[is_measured] == WHOLE).all() and is_measured.any()
        ]
        spent = {
            name: share
            for name, share in budget.query_shares.get(level.name, {}).items()
            if share and any(query.refines(marginal_query(schema, name)) for query in exact)
        }
        if spent:
            sentences.append(
                f"{universe}: at {level.name} the answers to {', '.join(spent)} are exact by "
                f"declaration, so that the {100 * float(sum(spent.values())):.3g} % of the budget "
                f"there which measures them buys nothing: give it to other queries in "
                f"budget.{universe}.queries"
            )
    return tuple(sentences)


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of files that were not there.

    Earlier universes that relations name must have been estimated.
    """
    shards = [
        shard
        for shard in shards_of(run, universe)
        if not constraints_file(run, universe, shard.geolevel, shard.name).exists()
    ]
    if not shards:
        return 0
    spine, schema = spine_of(run, universe), settings.schema_of(universe)
    zeros, public = settings.zeros_of(universe), public_answers(run, settings, universe, spine)
    declared = held_invariants(settings.compiled_census.universes[universe], public.exact)
    resolved = resolved_invariants(spine, declared, public.units)
    for shard in shards:
        rows = constraints_of_shard(spine, shard, schema, declared, zeros, public, resolved)
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)
    return len(shards)
