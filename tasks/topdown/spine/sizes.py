"""How much there is to do in each task of a run, from public geography and settings alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.shards import Shard, shards_by_geolevel


def sizes_of_calls(
    run: RunDirectory, settings: TopdownSettings, step: str, keys: Sequence[tuple[Any, ...]]
) -> list[float] | None:
    """Sizes of the calls of one step that make up a stage, given their keys.

    A shard that is measured has the size of its noisy answers, any other that of its geounits,
    each of which counts as `_weight` has it. What is no shard has the blocks of its universe, or
    of all, and calls of the same stage share them. None as long as the spines are not built.
    """
    try:
        spines = {
            universe: shards_by_geolevel(spine_folder(run, universe))
            for universe in settings.run.universes
        }
    except OSError:
        return None
    by_keys = {
        (universe, geolevel, shard.name): shard
        for universe, of_universe in spines.items()
        for geolevel, of_geolevel in of_universe.items()
        for shard in of_geolevel
    }
    shards = [by_keys.get(own) for own in keys]
    if any(shard is None for shard in shards):
        universes = {own[0] for own in keys if own and own[0] in spines} or set(spines)
        n_blocks = sum(_n_blocks(spines[universe]) for universe in universes)
        return [n_blocks / len(keys)] * len(keys)
    weigh = _n_answers if step == "measure" else _weight
    weights = {
        (universe, geolevel): weigh(settings, universe, geolevel, [*spines[universe]])
        for universe, geolevel, _ in {own[:3] for own in keys}
    }
    return [
        float((shard.stop - shard.start) * weights[own[0], own[1]])
        for own, shard in zip(keys, shards, strict=True)
        if shard is not None
    ]


def _n_blocks(shards: Mapping[str, list[Shard]]) -> int:
    return max((shard.stop for shard in list(shards.values())[-1]), default=0)


def _n_answers(
    settings: TopdownSettings, universe: str, geolevel: str, _geolevels: Sequence[str]
) -> float:
    """Noisy answers of a geounit."""
    schema = settings.schema_of(universe)
    names = settings.budget_of(universe).query_shares.get(geolevel, {})
    return float(max(1, sum(marginal_query(schema, name).n_rows for name in names)))


def _weight(
    settings: TopdownSettings, universe: str, geolevel: str, geolevels: Sequence[str]
) -> float:
    """How long a geounit takes to estimate, beside a finest one of a schema of one cell.

    Fitted to a fiftieth of a generated nation, whose persons have 2,016 cells and whose units two:
    the support of a parent, on which its children are solved, grows far slower than its schema,
    and is larger above the finest geolevel.
    """
    of_schema = settings.schema_of(universe).n_cells ** 0.15
    return float(of_schema if geolevel == geolevels[-1] else 3.5 * of_schema)
