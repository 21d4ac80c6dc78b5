"""Distances of named entities from the spines of settings, from public data.

The entities are the members of the off-spine categories that the spine of a universe targets, and
listed areas. The cost of each is its off-spine distance (`geography.optimize`): the fewest geounits
that are added and subtracted to make it up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....geography.categories import GROUP_QUARTERS, Category
from ....geography.levels import Spine
from ....geography.optimize import distances, listed_entries, off_spine_distances
from ....geography.variance import statistics
from ...runs.errors import InputRefused
from ..intervals.areas import KnownBlocks, NamedAreas
from ..settings import TopdownSettings
from ..spine.build import PublicTables, spines_of
from .spine_summary import summary_of

LISTED = "listed areas"
"""Category of the listed areas."""


@dataclass(frozen=True, eq=False)
class SpineDistances:
    """Off-spine distances of all entities of a run's settings, as frames.

    entities : universe, category, entity, name, blocks, spine, distance; a row for each entity and
        spine. `entity` is its code, `name` its name, empty where no table has it, `blocks` how many
        of the spine's blocks it has.
    statistics : universe, spine, category, entities, mean, q50, q90, q99, max.
    deviations : universe and the columns of `SpineSummary.tabulated`.
    geounits : universe, spine, geolevel, geounits, for the spines of the settings and the spines
        that they are compared with.
    """

    entities: pd.DataFrame
    statistics: pd.DataFrame
    geounits: pd.DataFrame
    deviations: pd.DataFrame


def spine_distances(
    settings: TopdownSettings, tables: PublicTables, listed: pd.DataFrame | None = None
) -> SpineDistances:
    """Distances on the spine of each universe, and on the AIAN or conventional one for comparison.

    `tables` come from `ingest.public_geography`; `listed` has further areas, which may overlap, as
    `area_lists.read_areas` gives them.

    Raises InputRefused for a geography or rules that make no spine, for unknown listed blocks, and
    without any entity.
    """
    frames: list[pd.DataFrame] = []
    geounits: list[pd.DataFrame] = []
    deviations: list[pd.DataFrame] = []
    made = spines_of(settings)
    blocks = made.rows(tables)
    for universe in settings.run.universes:
        spine = made.spine(universe, tables)
        spines = made.compared(universe, spine, tables)
        summary = summary_of(settings, universe, spines, tables)
        deviations.append(summary.tabulated.assign(universe=universe))
        geounits.append(summary.geounits.assign(universe=universe))
        categories = made.categories(universe, tables)
        for name, spine in spines.items():
            own = [_category_entities(settings, spine, category, blocks) for category in categories]
            if listed is not None:
                own.append(_listed_entities(settings, spine, tables[0], listed))
            frames += [frame.assign(universe=universe, spine=name) for frame in own if len(frame)]
    if not frames:
        raise InputRefused(
            "This geography has no entity off its spine; name columns of the geography as "
            "geography.categories, or list areas with --entities."
        )
    columns = ["universe", "category", "entity", "name", "blocks", "spine", "distance"]
    entities = pd.concat(frames, ignore_index=True)[columns]
    rows = [
        dict(zip(("universe", "category", "spine"), key, strict=True))
        | {"entities": len(own)}
        | statistics(own["distance"].to_numpy())
        for key, own in entities.groupby(["universe", "category", "spine"], sort=False)
    ]
    counts = pd.concat(geounits, ignore_index=True)[["universe", "spine", "geolevel", "geounits"]]
    return SpineDistances(
        entities, pd.DataFrame(rows), counts, pd.concat(deviations, ignore_index=True)
    )


def _category_entities(
    settings: TopdownSettings, spine: Spine, category: Category, blocks: pd.DataFrame
) -> pd.DataFrame:
    """The targeted entities of a category, in the order of their codes."""
    kept = category.targeted()
    n_blocks = np.bincount(category.entity[spine.block_row], minlength=len(category))
    return pd.DataFrame(
        {
            "category": category.name,
            "entity": category.label[kept],
            "name": _names(settings, category, blocks)[kept],
            "blocks": n_blocks[kept],
            "distance": off_spine_distances(spine, category)[kept],
        }
    )


def _listed_entities(
    settings: TopdownSettings, spine: Spine, geography: pd.DataFrame, listed: pd.DataFrame
) -> pd.DataFrame:
    """The listed areas, by name."""
    known = KnownBlocks.of(geography, settings.compiled_census.code_column)
    areas = NamedAreas.listed(listed, known, spine.block_geocode)
    pairs, n_areas = areas.blocks, len(areas.names)
    entries = listed_entries(spine.n_blocks, pairs.block, pairs.area)
    return pd.DataFrame(
        {
            "category": LISTED,
            "entity": areas.names,
            "name": "",
            "blocks": np.bincount(pairs.area, minlength=n_areas),
            "distance": distances(spine, entries, n_areas),
        }
    )


def _names(settings: TopdownSettings, category: Category, blocks: pd.DataFrame) -> np.ndarray:
    """(n_entities,) names of the entities of a category, from the geography."""
    column = next((name for name in _name_columns(settings, category) if name in blocks), None)
    if column is None or category.name == GROUP_QUARTERS:
        return np.full(len(category), "", dtype=object)
    first = np.unique(category.entity, return_index=True)[1]
    return blocks[column].fillna("").to_numpy(dtype=object)[first]


def _name_columns(settings: TopdownSettings, category: Category) -> Iterator[str]:
    """Columns that may have the names of a category's entities: the one that is declared for it,
    and the one that accompanies a code of the census of 2020, such as PLACE_NAME.
    """
    census = settings.compiled_census
    declared, column = census.geography, category.name
    if category.name in declared.categories:
        column = declared.categories[category.name].column
    for level in (category.name, column):
        entry = declared.entities.get(level)
        if entry is not None and entry.name is not None:
            yield entry.name
    for part, code in census.code_parts.items():
        if code.column == column:
            yield f"{part}_NAME"
