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
from ...census.queries import Schema, marginal_query
from ...pages.document import NONE, Block, Document, Section, Table, document_of
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import read_declared
from ...runs.stamps import has_frames, read_frames, write_frames
from ..intervals.areas import KnownBlocks, NamedAreas
from ..paths import spine_folder
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
    made = spines_of(settings)
    tables = made.read(run)
    spines = made.compared(universe, spine_of(run, universe), tables)
    write_frames(summary_folder(run, universe), summary_of(settings, universe, spines, tables))


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
    """Tables and words of the report's part on a universe's spine, by their names in its
    template."""
    summary = read_frames(summary_folder(run, universe), SpineSummary)
    spine = settings.geography.spine
    census, made = settings.compiled_census, spines_of(settings)
    declared = census.universes[universe]
    invariants = [i.geolevel for i in declared.invariants if i.geolevel != census.geolevels[-1]]
    is_moved = set(summary.geounits["geolevel"]) - set(GEOLEVEL_ORDER["aian"])
    return {
        "universe": universe,
        "spine": SPINE_NAMES[spine],
        "before": SPINE_NAMES[made.before],
        "is_moved": is_moved and made.before == "aian",
        "counted": declared.counted.text,
        "exact": list(dict.fromkeys(invariants)),
        "geounits": _geounits(settings, summary, spine),
        "tabulated": tabulated_deviations(settings, summary.tabulated, universe),
        "distances": () if summary.distances.empty else statistics_table(summary.distances),
        "deviations": statistics_table(summary.standard_deviations),
    }


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
            f"The noise of a {_name(own['category'])} exceeds the noise of a larger "
            f"{_name(larger['category'])}: predicted deviations of {own['mean']:.3g} and "
            f"{larger['mean']:.3g} on average."
        )
    return found


def _name(category: str) -> str:
    """The readable name of a category."""
    return CATEGORY_NAMES.get(category, category)


def _of(frame: pd.DataFrame, spine: str) -> pd.DataFrame:
    return frame[frame["spine"] == spine]


def _geounits(settings: TopdownSettings, summary: SpineSummary, spine: str) -> Table:
    """Geounits and children of a geounit by geolevel, of one of the spines of a summary."""
    geounits, fan_out = _of(summary.geounits, spine), _of(summary.fan_out, spine)
    rows = []
    names = level_names(spine, tuple(geounits["geolevel"]))
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
    records = frame.to_dict("records")
    order = list(dict.fromkeys(row["category"] for row in records))
    rows = []
    for row in sorted(records, key=lambda row: order.index(row["category"])):
        figures = (float(row[name]) for name in STATISTICS)
        rows.append((_name(row["category"]), row["entities"], SPINE_NAMES[row["spine"]], *figures))
    return Table(("category", "entities", "spine", *STATISTICS.values()), tuple(rows))


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
) -> list[tuple[Table, int]]:
    """Entities of every category, the farthest from the settings' own spine first, at most so many,
    and how many the category has.

    The first header is the name of the category.
    """
    own = found.entities[found.entities["universe"] == universe]
    word, index = settings.compiled_census.area_word, ["entity", "name", "blocks"]
    tables = []
    for category, entities in own.groupby("category", sort=False):
        spines = list(dict.fromkeys(entities["spine"]))
        wide = entities.pivot(index=index, columns="spine", values="distance").reset_index()
        wide = wide.sort_values(settings.geography.spine, ascending=False, kind="stable")
        has_names = (entities["name"] != "").any()
        columns = [*(index if has_names else ["entity", "blocks"]), *spines]
        headers = {"entity": _name(str(category)), "blocks": f"{word}s"} | SPINE_NAMES
        rows = tuple(
            tuple(cell if isinstance(cell, str) else int(cell) for cell in row)
            for row in wide[columns][:most].itertuples(index=False, name=None)
        )
        table = Table(tuple(headers.get(column, column) for column in columns), rows)
        tables.append((table, len(wide)))
    return tables


def _facts(settings: TopdownSettings, found: SpineDistances, universe: str) -> dict[str, Any]:
    """The tables of a universe on the page, by their names in its template."""
    summary = found.summaries[universe]
    spines = summary.geounits["spine"].unique()
    return {
        "universe": universe,
        "tabulated": tabulated_deviations(settings, summary.tabulated, universe),
        "distances": statistics_table(summary.distances),
        "entities": entity_tables(settings, found, universe, MOST_ENTITIES),
        "sizes": [(SPINE_NAMES[own], _geounits(settings, summary, own)) for own in spines],
    }
