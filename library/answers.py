"""Measurements and estimates of a run as data frames, their cells decoded to labels.

Products keep their answers in different ways: `ANSWERS` has the reader of each. All return a row
for every answer: its place (`geolevel`, `geocode`, or the product's own columns), the counted
combination (a column for each attribute, with the labels of levels, null where it is summed over),
and the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from spineflow.geography.levels import OF_THE_SPINE
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX
from spineflow.tasks.census.queries import label_parts
from spineflow.tasks.detailed_groups.ingest.ingest import measured_folder, read_shards
from spineflow.tasks.detailed_groups.workload.tabulations import OLDEST_AGE, TABULATIONS
from spineflow.tasks.group_sizes.ingest.read import read_plan
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.names import did_you_mean, factors_of
from spineflow.tasks.supplemental_dhc.ingest import read_areas
from spineflow.tasks.supplemental_dhc.plan import ITERATIONS, MEASURES
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.spine.files import GEOUNITS, spine_of

FIGURES = ("value", "variance", "plb")
"""Columns of every measurement: noisy count, variance of its noise, and budget spent on it."""


Kind = Literal["measurements", "estimates"]

Places = Sequence[tuple[str, Path]]
"""Geolevels, and folders with a part of their answers."""

PlacesOf = Callable[[RunDirectory, str, Kind], Places]


@dataclass(frozen=True)
class Answers:
    """Storage of a product's answers.

    universes : the names of the counted universes, by the settings.
    places : places of a universe's noisy measurements or of its estimates.
    decode : rows of a table of either kind, given the settings and the universe.
    """

    universes: Callable[[Any], Sequence[str]]
    places: PlacesOf
    decode: Callable[[Any, str, pa.Table], pd.DataFrame]


def read_answers(
    run: RunDirectory,
    settings: Any,
    kind: Kind,
    *,
    universe: str | None,
    geolevel: str | None,
    query: str | None = None,
) -> pd.DataFrame:
    """The measurements or the estimates of a run.

    Raises SpineflowError for a universe, a geolevel or a query that the run does not have.
    """
    answers = ANSWERS[settings.PRODUCT]
    universes = answers.universes(settings)
    universe = universe or universes[0]
    refuse_unknown("universe", universe, universes)
    try:
        places = answers.places(run, universe, kind)
        found = [(level, folder) for level, folder in places if folder.is_dir()]
    except FileNotFoundError:
        found = []  # The run was ended before its plan was written.
    if geolevel is not None and found:
        levels = [level for level, _ in found]
        if geolevel not in levels and f"{geolevel}{OF_THE_SPINE}" in levels:
            raise InputRefused(
                f"The spine regroups the areas of {geolevel!r}, and has {kind} of its own groups: "
                f"ask for '{geolevel}{OF_THE_SPINE}', or for intervals of {geolevel!r} by "
                "make_intervals."
            )
        refuse_unknown("geolevel", geolevel, levels)
    frames, names, n_files = [], [], 0
    for level, folder in found:
        for file in sorted(folder.glob("*.parquet")) if geolevel in (None, level) else ():
            table = pq.read_table(file)
            n_files += 1
            if query is not None:
                if "query_name" not in table.column_names:
                    refuse_unknown("query", query, [], universe)
                there = pc.unique(table["query_name"]).to_pylist()
                parts = factors_of(query)  # Whatever the spaces and the order of its parts.
                asked = [n for n in there if factors_of(n.removesuffix(DPQUERY_SUFFIX)) == parts]
                names += there
                table = table.filter(pc.is_in(table["query_name"], pa.array(asked, pa.string())))
            if table.num_rows:
                frame = answers.decode(settings, universe, table)
                frame.insert(0, "geolevel", level)
                frames.append(frame)
    if not frames:
        if names:
            asked = sorted({name.removesuffix(DPQUERY_SUFFIX) for name in names})
            refuse_unknown("query", str(query), asked, universe)
        if n_files:
            raise InputRefused(
                f"{run.root} has no {kind} of {universe} at {geolevel}: the spine bypasses its "
                "geounits, and other geolevels have their share."
            )
        raise InputRefused(f"{run.root} has no {kind} of {universe} yet; finish the run first.")
    return _concatenate_frames(frames)


def refuse_unknown(what: str, name: str, names: Sequence[str], universe: str = "") -> None:
    """Raise InputRefused for a name that the run does not have; an empty one is any name."""
    if name not in names:
        there = ", ".join(dict.fromkeys(names)) or "none"
        asked = f" {name!r}" if name else ""
        of = f" of {universe}" if universe else ""
        near = did_you_mean(name, names)
        raise InputRefused(f"The run has no {what}{asked}{of}{near}; there are {there}.")


def _concatenate_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames below each other, the figures last."""
    whole = pd.concat(frames, ignore_index=True)
    last = [name for name in whole.columns if name in (*FIGURES, "count")]
    return whole[[*whole.columns.difference(last, sort=False), *last]]


def _explode_lists(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row of every single value of a table's lists, its place in the list, and the values."""
    lists = table["value"].combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy()
    row = np.repeat(np.arange(table.num_rows), lengths)
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return row, place, lists.flatten().to_numpy()


def _values(
    table: pa.Table,
    row: np.ndarray,
    value: np.ndarray,
    keys: Mapping[str, str],
    cells: Mapping[str, Any],
) -> pd.DataFrame:
    """Values `(n,)` of some rows of a table, with their attributes and figures.

    `keys` are columns of the table by the names that they get, `cells` columns of as many values.
    """

    def at(column: str) -> np.ndarray:
        return table[column].to_pandas().to_numpy()[row]

    return pd.DataFrame(
        {name: at(column) for name, column in keys.items()}
        | dict(cells)
        | {"value": value}
        | {name: at(name) for name in FIGURES[1:]}
    )


def _label_codes(labels: Sequence[Any], codes: np.ndarray) -> pd.Categorical:
    """The labels with these numbers, in the order of their first ones; None is no label."""
    categories = [label for label in dict.fromkeys(labels) if label is not None]
    return pd.Categorical(labels, categories, ordered=True).take(codes)


def order_labels(frame: pd.DataFrame, settings: Any, universe: str | None) -> pd.DataFrame:
    """A table whose columns of attributes and coarsenings have their levels in declared order.

    Other columns than labels of levels, such as codes, are unchanged.
    """
    if settings.PRODUCT not in ("topdown", "estimate") or universe not in settings.run.universes:
        return frame
    schema = settings.schema_of(universe)
    labels = {coarsening.name: coarsening.levels for coarsening in schema.coarsenings}
    labels |= {name: schema.labels(name) for name in schema.attributes}
    for name in set(labels).intersection(frame.columns):
        if frame[name].dropna().isin(labels[name]).all():
            frame[name] = pd.Categorical(frame[name], categories=labels[name], ordered=True)
    return frame


def _places_of(levels: Callable[[RunDirectory, str], Mapping[str, str]]) -> PlacesOf:
    """The places of levels, whose names in the files and for people `levels` returns."""

    def places(run: RunDirectory, universe: str, kind: Kind) -> Places:
        file = run.dpqueries if kind == "measurements" else run.estimates
        named = levels(run, universe).items()
        return [(words, file(universe, name).parent) for name, words in named]

    return places


def _census_levels(run: RunDirectory, universe: str) -> Mapping[str, str]:
    """All geolevels of a universe's spine, root first."""
    has_spine = (spine_folder(run, universe) / GEOUNITS).exists()
    return spine_of(run, universe).level_names if has_spine else {}


def _decode_census(settings: Any, universe: str, table: pa.Table) -> pd.DataFrame:
    schema = settings.schema_of(universe)
    if "cell" in table.column_names:
        levels = np.unravel_index(table["cell"].to_numpy(), schema.shape)
        labelled = {
            name: _label_codes(schema.labels(name), level)
            for name, level in zip(schema.attributes, levels, strict=True)
        }
        geocode, count = table["geocode"].to_pandas(), table["count"].to_numpy()
        return pd.DataFrame({"geocode": geocode} | labelled | {"count": count})
    names = table["query_name"].to_pandas()
    frames = [
        _answers_of(schema, name, table.filter(pa.array(names == name)))
        for name in dict.fromkeys(names)
    ]
    return _concatenate_frames(frames)


def _answers_of(schema: Any, query_name: str, table: pa.Table) -> pd.DataFrame:
    """The answers to one query, with a column of labels for each attribute that it keeps."""
    name = query_name.removesuffix(DPQUERY_SUFFIX)
    row, place, value = _explode_lists(table)
    parts = label_parts(schema, name)
    shape = tuple(len(labels) for _, _, labels in parts)
    levels = np.unravel_index(place, shape) if parts else ()
    cells = {
        part: _label_codes(labels, level)
        for (part, _, labels), level in zip(parts, levels, strict=True)
    }
    return _values(table, row, value, {"geocode": "geocode"}, {"query": name, **cells})


def _decode_group_sizes(settings: Any, universe: str, table: pa.Table) -> pd.DataFrame:
    first = settings.smallest_size
    if "cell" in table.column_names:
        frame = table.rename_columns({"geocode": "region", "cell": "size"}).to_pandas()
        return frame.assign(size=frame["size"] + first)
    row, place, value = _explode_lists(table)
    keys = {"region": "geocode", "query": "query_name"}
    return _values(table, row, value, keys, {"size": place + first})


def _trips_levels(run: RunDirectory, universe: str) -> Mapping[str, str]:
    return {path.name: path.name for path in sorted(run.root.glob(f"*/{universe}/level_*"))}


def _decode_trips(settings: Any, universe: str, table: pa.Table) -> pd.DataFrame:
    return table.replace_schema_metadata().to_pandas()


def _groups_places(run: RunDirectory, universe: str, kind: Kind) -> Places:
    """Places of detailed groups of persons, or of the households' tables by the householder's."""
    is_of_persons = universe == PERSONS_BY_GROUP
    if kind == "estimates":
        what = "Detailed groups" if is_of_persons else "Households"
        table = "population_groups" if is_of_persons else "detailed_households"
        raise InputRefused(
            f"{what} have no estimates apart from the release; read table('{table}')."
        )
    levels = dict.fromkeys((shard.region_type, shard.level) for shard in read_shards(run))
    name = "p" if is_of_persons else universe
    return [(level[0], measured_folder(run, name, *level)) for level in levels]


def _decode_groups(settings: Any, universe: str, table: pa.Table) -> pd.DataFrame:
    """Counts of detailed groups by sex and age, or of households by category."""
    tabulation = TABULATIONS["p" if universe == PERSONS_BY_GROUP else universe]
    row, place, value = _explode_lists(table)
    of_tables = [tabulation.labels_of_cells(own) for own in range(len(tabulation.names))]
    first = np.cumsum([0, *map(len, of_tables)])
    number = np.concatenate(of_tables)[first[table["table"].to_numpy()[row]] + place]
    keys = ["region_id", "iteration_code", "table"]
    labels = {"category": tabulation.labels.get("category", ())}
    if tabulation.of_persons:
        keys.append("total_only")
        sexes, *ages = tabulation.labels.values()
        labels = {"sex": sexes, "age": list(map(_age_label, *ages))}
    cells = {name: _label_codes(own, number) for name, own in labels.items()}
    return _values(table, row, value, dict(zip(keys, keys, strict=True)), cells)


def _age_label(first: int | None, last: int | None) -> str | None:
    """A range of ages, such as 0-17 and 65+; None for all ages."""
    if first is None or first == last:
        return None if first is None else str(first)
    return f"{first}+" if last == OLDEST_AGE else f"{first}-{last}"


def _decode_supplemental_dhc(settings: Any, universe: str, table: pa.Table) -> pd.DataFrame:
    if "estimate" in table.column_names:
        return table.drop_columns(["level"]).replace_schema_metadata().to_pandas()
    row, place, value = _explode_lists(table)
    names = [name.removesuffix(DPQUERY_SUFFIX) for name in table["query_name"].to_pylist()]
    measures = np.array([name.partition(" ")[0] for name in names], dtype=object)
    codes = [ITERATIONS[name.partition(" ")[2]] for name in names]
    n_cells = np.array([MEASURES[measure].n_cells for measure in measures])[row]
    iteration = [codes[i][j] for i, j in zip(row, place // n_cells, strict=True)]
    cells = {"measure": measures[row], "iteration": iteration, "cell": place % n_cells}
    return _values(table, row, value, {"region": "geocode"}, cells)


PERSONS_BY_GROUP = "detailed_groups"
"""Universe of detailed groups of persons."""

_CENSUS = Answers(
    lambda settings: settings.run.universes, _places_of(_census_levels), _decode_census
)
ANSWERS: Mapping[str, Answers] = {
    "topdown": _CENSUS,
    "estimate": _CENSUS,
    "detailed-groups": Answers(
        lambda settings: (PERSONS_BY_GROUP,), _groups_places, _decode_groups
    ),
    "detailed-households": Answers(lambda settings: ("t3", "t4"), _groups_places, _decode_groups),
    "group-sizes": Answers(
        lambda settings: ("groups",),
        _places_of(lambda run, _: {own.level: own.level for own in read_plan(run).levels}),
        _decode_group_sizes,
    ),
    "supplemental-dhc": Answers(
        lambda settings: ("people_in_households",),
        _places_of(lambda run, _: {name: name for name in read_areas(run).regions}),
        _decode_supplemental_dhc,
    ),
    "trips": Answers(lambda settings: ("trips",), _places_of(_trips_levels), _decode_trips),
}
"""Storage of each product's answers, by product."""
