"""How much there is to do in each task of a run, from public geography and settings alone."""

from __future__ import annotations

from collections.abc import Mapping

from ...census.queries import marginal_query
from ..settings import TopdownSettings
from .shards import Shard, n_geounits

ANSWERS_PER_BLOCK = 30
"""Noisy answers that take as long to draw as a block takes to be added to a geounit."""


SMALL = {"measure": 1 << 20, "combine": 5_000, "estimate": 5_000}
"""Sizes of shards, by step, below which their work takes a fifth of a second or less: starting a
task takes nearly as long."""


def is_small(
    settings: TopdownSettings,
    step: str,
    universe: str,
    shards: Mapping[str, list[Shard]],
    shard: Shard,
) -> bool:
    """Whether a shard's work is not worth a task of its own; `shards` are those of its spine."""
    weigh = _answers if step == "measure" else _estimates
    size = (shard.stop - shard.start) * weigh(settings, universe, shard.geolevel, shards)
    return size <= SMALL[step]


def _n_blocks(shards: Mapping[str, list[Shard]]) -> int:
    return n_geounits([*shards.values()][-1])


def _answers(
    settings: TopdownSettings, universe: str, geolevel: str, shards: Mapping[str, list[Shard]]
) -> float:
    """How long a geounit takes to measure: its noisy answers, and to sum the blocks below it."""
    schema = settings.schema_of(universe)
    names = settings.budget_of(universe).query_shares.get(geolevel, {})
    n_answers = max(1, sum(marginal_query(schema, name).n_rows for name in names))
    return n_answers + ANSWERS_PER_BLOCK * _n_blocks(shards) / n_geounits(shards[geolevel])


def _estimates(
    settings: TopdownSettings, universe: str, geolevel: str, shards: Mapping[str, list[Shard]]
) -> float:
    """How long a geounit takes to estimate, beside a block of a schema of one cell.

    The support of its parent, on which it is solved, grows far slower than the schema and the
    number of blocks below; the exponents are fitted to a generated nation and a fiftieth of it,
    whose persons have 2,016 cells and whose units two.
    """
    blocks = _n_blocks(shards) / n_geounits(shards[geolevel])
    return float(settings.schema_of(universe).n_cells ** 0.15 * blocks**0.4)
