"""A page to look at a release: one HTML file that needs no network, with tables, map and margins.

A reader chooses a table and a level, searches and sorts areas, compares two of them, and downloads
the selection. Vega-Lite draws it, with its scripts inlined by Altair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..pages.document import NONE, render_page
from ..runs.errors import InputRefused
from ..runs.files import write_text
from ..tables.geometry import read_shapes
from .released_tables import LevelCounts, codes_by_level, counts_by_level, released_tables

MOST_AREAS = 6000
"""Largest number of areas of a level on a page; larger levels are only in the files."""

MOST_BYTES = 15 << 20
"""Size limit of a page; a larger one leaves out the levels with the most areas."""

TOLERANCE = 1 / 1000
"""Tolerance of simplified boundaries, relative to the extent of a map."""

PER_DEVIATION = 2 * 1.6449
"""Width of a margin of 90 % in standard deviations."""


def write_explorer(
    release: Path,
    path: Path,
    *,
    title: str,
    guarantee: str,
    labels: Mapping[str, str] | None = None,
    geometry: Path | None = None,
) -> tuple[str, ...]:
    """Write the page of a release.

    Args:
        release: The folder of the release, with its `tables`.
        path: Path of the page.
        title: Title of the release. guarantee: Its guarantee, in a sentence.
        labels: Descriptions of variables, by name.
        geometry: Boundaries of areas, as a file or a folder of them; None for no map.

    Returns:
        The levels that the page leaves out, since they have too many areas.

    Raises:
        InputRefused: The release has no tables of areas.
    """
    tables = released_tables(release)
    if not tables:
        raise InputRefused(f"{release} has no tables of areas, which a page could show.")
    found = [level for table in tables for level in counts_by_level(table, labels or {})]
    found.sort(key=lambda level: len(level.counts))
    kept = [level for level in found if len(level.codes) <= MOST_AREAS]
    drawn = {} if geometry is None else _boundaries(geometry, kept)
    while True:
        content = {
            "levels": [vars(level) for level in kept],
            "boundaries": drawn,
            "perDeviation": PER_DEVIATION,
        }
        page = render_page(
            "dissemination/templates/explorer.html.j2",
            title=title,
            guarantee=guarantee,
            stamp=tables[0].stamp,
            none=NONE,
            script=_vega(),
            charts=_charts(),
            # A closing tag in a name must not end the script.
            content=json.dumps(content, ensure_ascii=False).replace("</", "<\\/"),
            left_out=sorted({level.level for level in found if level not in kept}),
        )  # fmt: skip
        if len(page.encode()) <= MOST_BYTES or len(kept) == 1:
            break
        kept.pop()
    write_text(path, page)
    return tuple(sorted({level.level for level in found if level not in kept}))


def _vega() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # Its stub is wrong.
    return script.replace("</script", "<\\/script")


def _charts() -> str:
    """Specifications of the bars and of the map, whose rows the page gives them."""
    import altair as alt

    rows = alt.NamedData("rows")
    # Layers agree on an order given by a field.
    order = alt.EncodingSortField("place", op="min")
    area = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=200))
    bars = (
        alt.Chart(rows).mark_point(filled=True, size=50).encode(x="count:Q", y=area)
        + alt.Chart(rows).mark_rule(strokeWidth=2).encode(
            x=alt.X("lower:Q", title="count and margin of 90 %"), x2="upper:Q", y=area
        )
    ).properties(width="container")  # fmt: skip
    shapes = alt.Chart(alt.NamedData("rows", format=alt.DataFormat(type="json")))
    colour = alt.Color("properties.count:Q", title="count", scale=alt.Scale(scheme="blues"))
    shown = [alt.Tooltip(f"properties.{name}:N", title=name) for name in ("name", "count")]
    drawn = (
        shapes.mark_geoshape(stroke="#888", strokeWidth=0.4)
        .encode(color=colour, tooltip=shown)
        .project("identity", reflectY=True)
        .properties(width="container", height=420)
    )
    return json.dumps({"bars": bars.to_dict(validate=True), "map": drawn.to_dict(validate=True)})


def _boundaries(geometry: Path, levels: Sequence[LevelCounts]) -> dict[str, dict[str, Any]]:
    """Simplified shapes by level and code, as coordinates of GeoJSON."""
    found: dict[str, dict[str, Any]] = {}
    for layer in read_shapes(geometry, codes_by_level(levels)):
        rings = {code: [*chain(*map(rings_of, own))] for code, own in layer.shapes.items()}
        points = np.concatenate([ring for own in rings.values() for ring in own])
        step = float(np.ptp(points, axis=0).max()) * TOLERANCE
        # Degrees of longitude are shorter than degrees of latitude.
        in_degrees = layer.crs is None or layer.crs.is_geographic
        narrow = math.cos(math.radians(points[:, 1].mean())) if in_degrees else 1.0
        found[layer.level] = {
            code: [_simplify_ring(ring, step, narrow) for ring in own]
            for code, own in rings.items()
            if own
        }
    return found


def rings_of(shape: Any) -> list[np.ndarray]:
    """Outer and inner rings (n, 2) of a polygon or of several; other shapes have none."""
    polygons = getattr(shape, "geoms", [shape])
    return [
        np.asarray(ring.coords, dtype=float)[:, :2]
        for polygon in polygons
        if polygon.geom_type == "Polygon"
        for ring in (polygon.exterior, *polygon.interiors)
    ]


def _simplify_ring(ring: np.ndarray, step: float, narrow: float) -> list[list[float]]:
    """A ring on a grid of steps, without repeated points, as on a plane map."""
    steps = np.round(ring / step).astype(np.int64)
    moved = np.any(np.diff(steps, axis=0, prepend=steps[:1] - 1), axis=1)
    points = steps[moved] * step * [narrow, 1.0]
    # A ring is closed and has at least the points of a triangle.
    closed = points if len(points) > 3 else ring * [narrow, 1.0]
    return [[float(f"{x:.7g}"), float(f"{y:.7g}")] for x, y in closed]
