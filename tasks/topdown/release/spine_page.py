"""The page of the command `spine`: off-spine distances of categories and of single entities."""

from __future__ import annotations

import pandas as pd

from ...pages.document import NONE, Block, Details, Document, Section, Table
from ..settings import TopdownSettings
from .spine_distances import SpineDistances
from .spine_section import SPINE_NAMES, means_chart, statistics_table, with_category_names

MOST_ENTITIES = 1000
"""Entities of a category on the page, the farthest first; more would be slow to show."""

LABEL = "mean off-spine distance (geounits)"


def spine_document(settings: TopdownSettings, found: SpineDistances) -> Document:
    """Statistics and entities of every universe; the farthest entities stand first."""
    sections = [
        Section(f"Off-spine distances of {universe}", tuple(_blocks(settings, found, universe)))
        for universe in settings.run.universes
    ]
    return Document(
        f"Off-spine distances: {settings.privacy.dataset}",
        (
            f"How far named entities are from the {SPINE_NAMES[settings.geography.spine]} of "
            f"{settings.privacy.dataset}, from public geography and declared invariants alone. "
            "Nothing has been spent, and no person was read.",
            "Off-spine distance: the fewest geounits that must be added and subtracted to make up "
            "an entity. Fewer is better: every geounit adds its noise.",
        ),
        tuple(sections),
    )


def category_statistics(found: SpineDistances, universe: str) -> pd.DataFrame:
    """The statistics of a universe, with the names of its categories."""
    own = found.statistics[found.statistics["universe"] == universe]
    return with_category_names(own)


def entity_tables(
    settings: TopdownSettings, found: SpineDistances, universe: str, most: int
) -> list[Table]:
    """Entities of every category, the farthest from the settings' own spine first, at most so many.

    The first header is the name of the category.
    """
    own = found.entities[found.entities["universe"] == universe]
    named = with_category_names(own)
    return [
        _entities(settings, str(name), entities, most)
        for name, entities in named.groupby("category", sort=False)
    ]


def _entities(settings: TopdownSettings, name: str, entities: pd.DataFrame, most: int) -> Table:
    spines = list(dict.fromkeys(entities["spine"]))
    index = ["entity", "name", "blocks"]
    wide = entities.pivot(index=index, columns="spine", values="distance").reset_index()
    wide = wide.sort_values(settings.geography.spine, ascending=False, kind="stable")[:most]
    columns = (
        [*index, *spines] if (entities["name"] != "").any() else ["entity", *index[2:], *spines]
    )
    headers = {"entity": name, "blocks": f"{settings.area_word}s"} | SPINE_NAMES
    rows = tuple(
        tuple(cell if isinstance(cell, str) else int(cell) for cell in row)
        for row in wide[columns].itertuples(index=False, name=None)
    )
    return Table(tuple(headers.get(column, column) for column in columns), rows)


def _blocks(settings: TopdownSettings, found: SpineDistances, universe: str) -> list[Block]:
    statistics = category_statistics(found, universe)
    title = f"Mean off-spine distance by category, {universe}"
    blocks: list[Block] = [statistics_table(statistics), *means_chart(statistics, LABEL, title)]
    n_entities = dict(zip(statistics["category"], statistics["entities"], strict=True))
    for table in entity_tables(settings, found, universe, MOST_ENTITIES):
        n = n_entities[table.headers[0]]
        which = f"all {n:,}" if len(table.rows) == n else f"the farthest {MOST_ENTITIES:,} of {n:,}"
        blocks.append(Details(f"{table.headers[0]}: {which}", (table,)))
    return [*blocks, "Geounits of the spine, by geolevel.", _sizes(found, universe)]


def _sizes(found: SpineDistances, universe: str) -> Table:
    counts = found.geounits[found.geounits["universe"] == universe]
    spines = list(dict.fromkeys(counts["spine"]))
    of = {(row.geolevel, row.spine): int(row.geounits) for row in counts.itertuples()}
    return Table(
        ("geolevel", *(f"geounits, {SPINE_NAMES[spine]}" for spine in spines)),
        tuple(
            (name, *(of.get((name, spine), NONE) for spine in spines))
            for name in dict.fromkeys(counts["geolevel"])
        ),
    )
