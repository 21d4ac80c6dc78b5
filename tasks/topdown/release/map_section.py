"""The report's map: errors by area for public input, for others how wide the margins are.

The areas are those of the tables of a release, whose geocodes the geometry repeats. Entities that
are not on the spine (county subdivisions, places, AIAN areas) are outlined where they have a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.pages.document import Figure, Section
from spineflow.tasks.pages.maps import area_map
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.geometry import Layer, read_layers
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.margin_files import MARGIN_LEVEL, SUFFIX
from spineflow.tasks.topdown.release.tabulations.levels import SUMMARY_LEVELS, entities_of
from spineflow.tasks.topdown.release.tabulations.run import tabulated_universes
from spineflow.tasks.topdown.release.tabulations.tables import TABLES
from spineflow.tasks.topdown.settings import TopdownSettings

OFF_SPINE = ("060", "160", "280")
"""Summary levels of entities that may lie across the geounits of the spine."""
MOST_AREAS = 6000
"""Areas on a map; more would be smaller than a point of the page."""
COUNTED = {"persons": ("P0010001", "population"), "units": ("H0010002", "occupied housing units")}
"""The variable that a map shows, and what it counts, by universe."""
TITLE = "Map"


def map_section(
    run: RunDirectory, settings: TopdownSettings, truth: Mapping[str, pd.Series] | None
) -> Section | None:
    """A map of the finest layer of the geometry that is not too fine; None without geometry.

    `truth` has the true number of records of every block by universe, by block geocode, for input
    that is not confidential.
    """
    place = settings.input.geometry
    universes = [u for u in tabulated_universes(settings) if u in COUNTED]
    if place is None or not universes:
        return None
    universe = universes[0]
    variable, counted = COUNTED[universe]
    tables = {
        code: _table(run, code, "", ["GEOCODE", variable]).set_index("GEOCODE")[variable]
        for code in SUMMARY_LEVELS
    }
    try:
        layers = read_layers(Path(place), {code: set(rows.index) for code, rows in tables.items()})
    except InputRefused as error:
        return Section(TITLE, (str(error),))
    filled = [
        layer for layer in layers if layer.level not in OFF_SPINE and len(layer.areas) <= MOST_AREAS
    ]
    if not filled:
        return Section(TITLE, ("The geometry has no areas with the codes of this release.",))
    base = max(filled, key=lambda layer: len(layer.areas))
    if truth is not None and universe == "persons":
        values = tables[base.level] - _true(run, base.level, truth[universe])
        label = f"released less true {counted}"
        words = f"Error of the {counted} by {_name(base)}; the input is not confidential."
    else:
        margins = _widths(run, base.level, variable)
        if margins is None:
            return Section(TITLE, ("Without margins there is nothing to show on a map.",))
        values = margins
        label = f"half the width of the interval of {counted}"
        words = (
            f"Noise by {_name(base)}: half the width of the interval that holds the {counted} with "
            f"a probability of {100 * MARGIN_LEVEL:.0f} %."
        )
    outlines = [layer for layer in layers if layer.level in OFF_SPINE]
    names = sorted({_plural(layer) for layer in outlines})
    svg = area_map(
        [replace(area, value=float(values.get(code, np.nan))) for code, area in base.areas.items()],
        [area for layer in outlines for area in layer.areas.values()],
        title=f"Map: {label}",
        value_label=label,
        outline_label=f"{' and '.join(names)}, off the spine",
        in_degrees=base.in_degrees,
    )
    return Section(TITLE, (Figure(svg, words),))


def _table(run: RunDirectory, code: str, suffix: str, columns: list[str]) -> pd.DataFrame:
    path = run.release / TABLES / f"{SUMMARY_LEVELS[code].stem}{suffix}.parquet"
    return pq.read_table(path, columns=columns).to_pandas()


def _widths(run: RunDirectory, code: str, variable: str) -> pd.Series | None:
    """Half the width of every entity's interval by geocode; None where there are no margins."""
    ends = [f"{variable}_LOWER", f"{variable}_UPPER"]
    try:
        rows = _table(run, code, SUFFIX, ["GEOCODE", *ends])
    except FileNotFoundError:
        return None
    lower, upper = (rows[end] for end in ends)
    return pd.Series((upper - lower).to_numpy() / 2, index=rows["GEOCODE"])


def _true(run: RunDirectory, code: str, of_blocks: pd.Series) -> pd.Series:
    """True records of every entity of a summary level, by geocode."""
    geography = read_geography(geography_file(run))
    entities = entities_of(geography, SUMMARY_LEVELS[code])
    known = of_blocks.reindex(geography["block_geocode"]).fillna(0).to_numpy()
    inside = entities.block_entity >= 0
    sums = np.bincount(entities.block_entity[inside], known[inside], minlength=len(entities))
    return pd.Series(sums, index=entities.geocode.to_pylist())


def _name(layer: Layer) -> str:
    name = SUMMARY_LEVELS[layer.level].name
    return name if name.startswith("AIAN") else name.lower()


def _plural(layer: Layer) -> str:
    name = _name(layer)
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
