"""Benefits of a universe's spine: figures of the report and of the command `spine`, from public
geography alone.

The command lists the members of the off-spine categories that the spine of a universe targets, and
listed areas. The cost of each is its off-spine distance (`geography.optimize`): the fewest geounits
that are added and subtracted to make it up.

The report's part on a universe's spine: sizes, fan-outs, distances, predicted deviations.

The page of the command `spine` shows off-spine distances of categories and of single entities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....geography.categories import GROUP_QUARTERS, Category
from ....geography.levels import Spine, level_names
from ....geography.optimize import distances, listed_entries, off_spine_distances
from ....geography.rules import GEOLEVEL_ORDER
from ....geography.variance import (
    SpineSummary,
    noisier_than_larger,
    statistics,
    summarise_spines,
    total_share,
)
from ...census.invariants import read_geography, read_invariants
from ...census.queries import Schema, marginal_query
from ...pages.document import NONE, Block, Document, Figure, Section, Table, document_of
from ...pages.figures import bar_chart
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import read_declared
from ...runs.stamps import has_frames, read_frames, write_frames
from ..intervals.areas import KnownBlocks, NamedAreas
from ..paths import geography_file, invariants_file, spine_folder
from ..settings import TopdownSettings
from ..spine.build import PublicTables, on_aian_spine, spines_of
from ..spine.files import spine_of
from ..workload.budget import Budget
from .tabulations.levels import tabulated_categories

OF_THE_TABLES = (GROUP_QUARTERS, "aian", "mcd", "place", "block_group")
"""Off-spine categories of properties of blocks, or of areas that summary levels have."""


def summary_folder(run: RunDirectory, universe: str) -> Path:
    """Folder of the summary of a universe's spine."""
    return spine_folder(run, universe) / "summary"


def has_summary(run: RunDirectory, universe: str) -> bool:
    """Whether the summary was written completely."""
    return has_frames(summary_folder(run, universe), SpineSummary)


def write_summary(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Store `summary_of` a universe, from the run's geography, declared invariants and spine."""
    tables = read_geography(geography_file(run)), read_invariants(invariants_file(run))
    spines = spines_of(settings).compared(universe, spine_of(run, universe), tables)
    summary = summary_of(settings, universe, spines, tables)
    write_frames(summary_folder(run, universe), summary)


def summary_of(
    settings: TopdownSettings, universe: str, spines: Mapping[str, Spine], tables: PublicTables
) -> SpineSummary:
    """The figures of spines of a universe by their names, with the same budget.

    The predicted standard deviations refer to the count that the universe declares as `counted`.
    """
    budget, made = settings.budget_of(universe), spines_of(settings)
    categories = made.categories(universe, tables)
    tabulated = tabulated_categories(made.rows(tables), settings.compiled_census)
    known = {*OF_THE_TABLES, *(category.name for category in tabulated)}
    return summarise_spines(
        spines,
        categories,
        (*tabulated, *(category for category in categories if category.name not in known)),
        is_pure=budget.is_pure,
        privacy_loss=float(budget.total),
        total_shares=total_shares(
            budget,
            settings.schema_of(universe),
            is_part=bool(settings.compiled_census.universes[universe].counted.where),
        ),
    )


def read_summary(run: RunDirectory, universe: str) -> SpineSummary:
    """The summary stored by `write_summary`."""
    return read_frames(summary_folder(run, universe), SpineSummary)


def total_shares(budget: Budget, schema: Schema, *, is_part: bool) -> dict[str, float]:
    """By geolevel, the share of its budget that would measure a total, or where `is_part` one of
    the two parts of an exact one, as well as all its queries do; see
    `geography.variance.total_share`.

    For occupied units, say, the other answer of a query with two rows is as good as the answer
    itself, since both add to the invariant number of units: the query counts twice.
    """
    shares = {}
    for geolevel, queries in budget.query_shares.items():
        answers: list[float] = [marginal_query(schema, name).n_rows for name in queries]
        if is_part:
            answers = [0.5 if n == 2 else math.inf for n in answers]
        weights = [float(share) for share in queries.values()]
        shares[geolevel] = total_share(weights, answers, is_pure=budget.is_pure)
    if "Tract" not in shares:
        # Only the AIAN spine has tracts: the mean of the geolevels that they replace.
        own = budget.geolevel_shares
        moved = [name for name in own if name not in on_aian_spine(own)]
        if whole := float(sum(own[name] for name in moved)):
            shares["Tract"] = sum(float(own[name]) * shares[name] for name in moved) / whole
    return shares


LISTED = "listed areas"
"""Category of the listed areas."""


@dataclass(frozen=True, eq=False)
class SpineDistances:
    """Off-spine distances of all entities of a run's settings.

    entities : universe, category, entity, name, blocks, spine, distance; a row for each entity and
        spine. `entity` is its code, `name` its name, empty where no table has it, `blocks` how many
        of the spine's blocks it has.
    summaries : by universe, of the spine of the settings and the one that it is compared with;
        listed areas are a category.
    """

    entities: pd.DataFrame
    summaries: Mapping[str, SpineSummary]


def spine_distances(
    settings: TopdownSettings, tables: PublicTables, listed: pd.DataFrame | None = None
) -> SpineDistances:
    """Distances on the spine of each universe, and on the AIAN or conventional one for comparison.

    `tables` come from `ingest.public_geography`; `listed` has further areas, which may overlap, as
    `areas.read_areas` gives them.

    Raises InputRefused for a geography or rules that make no spine, for unknown listed blocks, and
    without any entity.
    """
    frames: list[pd.DataFrame] = []
    summaries: dict[str, SpineSummary] = {}
    made = spines_of(settings)
    blocks = made.rows(tables)
    for universe in settings.run.universes:
        spines = made.compared(universe, made.spine(universe, tables), tables)
        summary = summary_of(settings, universe, spines, tables)
        of_lists = []
        for name, spine in spines.items():
            own = [
                _category_entities(settings, spine, category, blocks)
                for category in made.categories(universe, tables)
            ]
            if listed is not None:
                own.append(_listed_entities(settings, spine, tables[0], listed))
                head = {"spine": name, "category": LISTED, "entities": len(own[-1])}
                of_lists.append(head | statistics(own[-1]["distance"].to_numpy()))
            frames += [frame.assign(universe=universe, spine=name) for frame in own if len(frame)]
        known = pd.concat([summary.distances, pd.DataFrame(of_lists)], ignore_index=True)
        summaries[universe] = replace(summary, distances=known)
    if not frames:
        raise InputRefused(
            "This geography has no entity off its spine; name columns of the geography as "
            "geography.categories, or list areas with --entities."
        )
    columns = ["universe", "category", "entity", "name", "blocks", "spine", "distance"]
    return SpineDistances(pd.concat(frames, ignore_index=True)[columns], summaries)


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
    for part, code in census.declared.code_parts.items():
        if code.column == column:
            yield f"{part}_NAME"


_WORDS = read_declared(Path(__file__).parent / "presets" / "spine_words.toml")
CATEGORY_NAMES, SPINE_NAMES = _WORDS["categories"], _WORDS["spines"]
STATISTICS = _WORDS["statistics"]


def spine_facts(run: RunDirectory, settings: TopdownSettings, universe: str) -> dict[str, Any]:
    """Tables, charts and words of the report's part on a universe's spine, by their names in its
    template."""
    summary = read_summary(run, universe)
    spine = settings.geography.spine
    census, made = settings.compiled_census, spines_of(settings)
    declared = census.universes[universe]
    invariants = [i.geolevel for i in declared.invariants if i.geolevel != census.geolevels[-1]]
    is_moved = set(summary.geounits["geolevel"]) - set(GEOLEVEL_ORDER["aian"])
    found = {
        "universe": universe,
        "spine": SPINE_NAMES[spine],
        "before": SPINE_NAMES[made.before],
        "is_moved": is_moved and made.before == "aian",
        "counted": declared.counted.text,
        "exact": list(dict.fromkeys(invariants)),
        "geounits": _geounits(settings, _of(summary.geounits, spine), _of(summary.fan_out, spine)),
        "tabulated": tabulated_deviations(settings, summary.tabulated, universe),
        "distances": [],
    }
    if not summary.distances.empty:
        label = f"mean standard deviation ({declared.counted.text})"
        title = f"Predicted standard deviation by category, {universe}"
        found["distances"] = _distances(summary.distances, universe)
        found["deviations"] = _statistics(summary.standard_deviations, label, title)
    return found


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


def _statistics(frame: pd.DataFrame, label: str, title: str) -> list[Block]:
    """The statistics of a summary's frame, and bars of the means by category, one for each spine;
    no bars where a mean is infinite."""
    frame = with_category_names(frame)
    means = frame.pivot(index="category", columns="spine", values="mean")
    means = means.loc[frame["category"].unique(), frame["spine"].unique()]
    means = means[np.isfinite(means).all(axis=1)]
    if means.empty:
        return [statistics_table(frame)]
    series = {SPINE_NAMES[spine]: means[spine].tolist() for spine in means}
    chart = bar_chart(list(means.index), series, title=title, value_label=label)
    return [statistics_table(frame), Figure(chart, f"{title}.")]


def _distances(frame: pd.DataFrame, universe: str) -> list[Block]:
    """Statistics of the off-spine distances of categories, and their means as a chart."""
    title = f"Mean off-spine distance by category, {universe}"
    return _statistics(frame, "mean off-spine distance (geounits)", title)


MOST_ENTITIES = 1000
"""Entities of a category on the page, the farthest first; more would be slow to show."""


def spine_document(settings: TopdownSettings, found: SpineDistances) -> Document:
    """Statistics and entities of every universe; the farthest entities are first."""
    return document_of(
        "topdown/templates/distances.md.j2",
        settings=settings,
        spine=SPINE_NAMES[settings.geography.spine],
        most=MOST_ENTITIES,
        universes=[_facts(settings, found, universe) for universe in settings.run.universes],
    )


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
    headers = {"entity": name, "blocks": f"{settings.compiled_census.area_word}s"} | SPINE_NAMES
    rows = tuple(
        tuple(cell if isinstance(cell, str) else int(cell) for cell in row)
        for row in wide[columns].itertuples(index=False, name=None)
    )
    return Table(tuple(headers.get(column, column) for column in columns), rows)


def _facts(settings: TopdownSettings, found: SpineDistances, universe: str) -> dict[str, Any]:
    """The tables of a universe on the page, by their names in its template."""
    summary = found.summaries[universe]
    n = with_category_names(summary.distances).groupby("category")["entities"].first()
    tables = entity_tables(settings, found, universe, MOST_ENTITIES)
    wide = summary.geounits.pivot(index="geolevel", columns="spine", values="geounits")
    wide = wide.loc[summary.geounits["geolevel"].unique(), summary.geounits["spine"].unique()]
    rows = tuple(
        (name, *(NONE if np.isnan(n) else int(n) for n in counts))
        for name, counts in zip(wide.index, wide.to_numpy(float), strict=True)
    )
    return {
        "universe": universe,
        "tabulated": tabulated_deviations(settings, summary.tabulated, universe),
        "distances": _distances(summary.distances, universe),
        "entities": [(table, int(n[table.headers[0]])) for table in tables],
        "sizes": Table(("geolevel", *(f"geounits, {SPINE_NAMES[own]}" for own in wide)), rows),
    }
