"""The first released counts of a topdown run: those of its spine's root, from the estimates."""

from __future__ import annotations

from collections.abc import Iterator

from ...answers.estimates import read_estimates
from ...census.queries import TOTAL, marginal_query
from ...census.schema import Schema
from ...pages.document import Block, Table
from ...products.reports import MOST_COUNTS
from ...runs.directory import RunDirectory
from ..paths import spine_folder
from ..settings import TopdownSettings
from ..spine.files import read_spine
from ..spine.shards import shards_by_geolevel


def first_counts(run: RunDirectory, settings: TopdownSettings) -> tuple[Block, ...]:
    """For every universe a table of the whole area's counts."""
    return tuple(of_root(run, settings, universe) for universe in settings.run.universes)


def of_root(run: RunDirectory, settings: TopdownSettings, universe: str) -> Table:
    """The total of a universe at the root, and its records by the attributes of fewest levels."""
    schema, folder = settings.schema_of(universe), spine_folder(run, universe)
    root = read_spine(folder).geolevels[0]
    shards = shards_by_geolevel(folder)[root.name]
    files = [run.estimates(universe, root.name, shard.name) for shard in shards]
    counts = read_estimates(files, root.geocode, schema.n_cells).sum(axis=0)
    rows = [(TOTAL, int(counts.sum()))]
    for name in _with_few_levels(schema):
        answers = marginal_query(schema, name).matrix @ counts
        labels = schema.labels(name)
        rows += [(f"{name}: {label}", int(n)) for label, n in zip(labels, answers, strict=True)]
    return Table((f"{universe}, {root.name.replace('_', ' ')}", "count"), tuple(rows), "count")


def _with_few_levels(schema: Schema) -> Iterator[str]:
    """Attributes, those of fewest levels first, whose levels fit below the total."""
    left = MOST_COUNTS - 1
    for name in sorted(schema.attributes, key=lambda name: len(schema.labels(name))):
        left -= len(schema.labels(name))
        if left < 0:
            return
        yield name
