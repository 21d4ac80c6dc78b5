"""The report's part on a universe's spine: sizes, fan-outs, distances, predicted deviations.

The page of the command `spine` shows off-spine distances of categories and of single entities.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ....geography.levels import level_names
from ....geography.rules import GEOLEVEL_ORDER
from ....geography.variance import noisier_than_larger
from ...pages.document import NONE, Block, Details, Document, Figure, Section, Table
from ...pages.figures import bar_chart
from ...runs.directory import RunDirectory
from ...runs.files import read_declared
from ..settings import TopdownSettings
from ..spine.build import PublicTables, spines_of
from .spine_distances import SpineDistances
from .spine_summary import read_summary, summary_of

_WORDS = read_declared(Path(__file__).parent / "presets" / "spine_words.toml")
CATEGORY_NAMES, SPINE_NAMES = _WORDS["categories"], _WORDS["spines"]
STATISTICS = _WORDS["statistics"]


def spine_section(run: RunDirectory, settings: TopdownSettings, universe: str) -> Section:
    """Tables and charts of the spine summary of a universe."""
    summary = read_summary(run, universe)
    spine = settings.geography.spine
    census, made = settings.compiled_census, spines_of(settings)
    declared = census.universes[universe]
    counted, imposed = declared.counted.text, "counts are made non-negative and whole"
    exact = [i.geolevel for i in declared.invariants if i.geolevel != census.geolevels[-1]]
    if exact and not settings.blocks_only:
        imposed = f"the exact answers at {', '.join(dict.fromkeys(exact))} are used and {imposed}"
    noise = " This run drew no noise; the prediction is for its budget." * settings.privacy.infinite
    taker = f"{settings.area_word}s" if settings.blocks_only else "parent"
    moved = ""
    is_moved = set(summary.geounits["geolevel"]) - set(GEOLEVEL_ORDER["aian"])
    if is_moved and made.before == "aian":
        moved = " Its tracts take the budget of the geolevels that it does not have."
    blocks: list[Block] = [
        f"Geounits of the {SPINE_NAMES[spine]}, and the children of a geounit at the geolevel "
        f"below. A bypassed geounit is not measured: its share of the budget went to its {taker}.",
        _geounits(settings, _of(summary.geounits, spine), _of(summary.fan_out, spine)),
    ]
    blocks += tabulated_deviations(settings, summary.tabulated, universe)
    if summary.distances.empty:
        blocks.append("No off-spine entity is targeted in this geography.")
        return Section(f"The spine of {universe}", tuple(blocks))
    distances, deviations = (
        with_category_names(frame) for frame in (summary.distances, summary.standard_deviations)
    )
    blocks += [
        "Off-spine distance: the fewest geounits that must be added and subtracted to make up an "
        f"entity, over the entities of each category. Fewer is better. The "
        f"{SPINE_NAMES[made.before]} is the spine of the same geography without optimised groups."
        f"{moved}",
        *_distances(distances, universe),
        f"Predicted standard deviation of an entity's {counted}, if all measurements are combined "
        f"by weighted least squares, before {imposed}.{noise}",
        statistics_table(deviations),
        *means_chart(
            deviations,
            f"mean standard deviation ({counted})",
            f"Predicted standard deviation by category, {universe}",
        ),
    ]
    return Section(f"The spine of {universe}", tuple(blocks))


def areas_section(settings: TopdownSettings, universe: str, tables: PublicTables) -> Section:
    """`tabulated_deviations` of a universe, from public tables alone."""
    made = spines_of(settings)
    spines = made.compared(universe, made.spine(universe, tables), tables)
    deviations = summary_of(settings, universe, spines, tables).tabulated
    blocks = tabulated_deviations(settings, deviations, universe)
    return Section(f"Areas of tables of {universe}, by spine", tuple(blocks or ["None."]))


def tabulated_deviations(
    settings: TopdownSettings, deviations: pd.DataFrame, universe: str
) -> list[Block]:
    """Predicted deviations of the areas of tables on each spine, and a sentence for every level
    that has more noise than a larger one.

    Args:
        deviations: rows of a universe of `SpineSummary.tabulated`.
    """
    if deviations.empty:
        return []
    deviations = with_category_names(deviations)
    declared = settings.compiled_census.universes[universe]
    found: list[Block] = [
        f"Predicted standard deviation of {declared.counted.text} in the areas of tables, if all "
        "measurements are combined by weighted least squares, from the geography, the declared "
        "invariants and the budget alone. Counts that are then made non-negative are closer, above "
        "all where many small areas are added up.",
        statistics_table(deviations),
    ]
    for own, larger in noisier_than_larger(_of(deviations, settings.geography.spine)):
        found.append(
            f"The noise of a {own['category']} exceeds the noise of a larger {larger['category']}: "
            f"predicted deviations of {own['mean']:.3g} and {larger['mean']:.3g} on average."
        )
    return found


def with_category_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with readable names of categories."""
    return frame.assign(category=[CATEGORY_NAMES.get(name, name) for name in frame["category"]])


def _of(frame: pd.DataFrame, spine: str) -> pd.DataFrame:
    return frame[frame["spine"] == spine]


def _geounits(settings: TopdownSettings, geounits: pd.DataFrame, fan_out: pd.DataFrame) -> Table:
    rows = []
    names = level_names(settings.geography.spine, tuple(geounits["geolevel"]))
    has_branch = bool((geounits["aian_geounits"] > 0).any())
    for level in geounits.itertuples():
        parents = fan_out[fan_out["geolevel"] == level.geolevel]
        children = parents["n_children"].repeat(parents["geounits"]).to_numpy()
        shown: tuple[str | float, ...] = (NONE, NONE, NONE)
        if len(children):
            quantile = np.quantile(children, 0.9, method="inverted_cdf")
            shown = (float(children.mean()), int(quantile), int(children.max()))
        on_branch = (level.aian_geounits,) * has_branch
        rows.append((names[level.geolevel], level.geounits, *on_branch, level.bypassed, *shown))
    branch = (spines_of(settings).branch,) * has_branch
    headers = ("geolevel", "geounits", *branch, "bypassed", "mean children", "90%", "most")
    return Table(headers, tuple(rows))


def statistics_table(frame: pd.DataFrame) -> Table:
    """The statistics of a summary's frame, a row for each category and spine."""
    rows = []
    for category in dict.fromkeys(frame["category"]):
        for row in frame[frame["category"] == category].to_dict("records"):
            figures = (float(row[name]) for name in STATISTICS)
            rows.append((category, row["entities"], SPINE_NAMES[row["spine"]], *figures))
    return Table(("category", "entities", "spine", *STATISTICS.values()), tuple(rows))


def means_chart(frame: pd.DataFrame, label: str, title: str) -> list[Figure]:
    """Bars of the means by category, one for each spine; none where a mean is infinite."""
    means = frame.pivot(index="category", columns="spine", values="mean")
    means = means.loc[frame["category"].unique(), frame["spine"].unique()]
    means = means[np.isfinite(means).all(axis=1)]
    if means.empty:
        return []
    names = list(means.index)
    series = {SPINE_NAMES[spine]: means[spine].tolist() for spine in means}
    return [Figure(bar_chart(names, series, title=title, value_label=label), f"{title}.")]


def _distances(frame: pd.DataFrame, universe: str) -> list[Block]:
    """Statistics of the off-spine distances of categories, and their means as a chart."""
    title = f"Mean off-spine distance by category, {universe}"
    label = "mean off-spine distance (geounits)"
    return [statistics_table(frame), *means_chart(frame, label, title)]


MOST_ENTITIES = 1000
"""Entities of a category on the page, the farthest first; more would be slow to show."""


def spine_document(settings: TopdownSettings, found: SpineDistances) -> Document:
    """Statistics and entities of every universe; the farthest entities are first."""
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
    told = index if (entities["name"] != "").any() else ["entity", "blocks"]
    columns = [*told, *spines]
    headers = {"entity": name, "blocks": f"{settings.area_word}s"} | SPINE_NAMES
    rows = tuple(
        tuple(cell if isinstance(cell, str) else int(cell) for cell in row)
        for row in wide[columns].itertuples(index=False, name=None)
    )
    return Table(tuple(headers.get(column, column) for column in columns), rows)


def _blocks(settings: TopdownSettings, found: SpineDistances, universe: str) -> list[Block]:
    statistics = category_statistics(found, universe)
    deviations = found.deviations[found.deviations["universe"] == universe]
    blocks = [
        *tabulated_deviations(settings, deviations, universe),
        *_distances(statistics, universe),
    ]
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
