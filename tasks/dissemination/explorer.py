"""A page to look at a release: one HTML file that needs no network, with tables, map and margins.

A reader chooses a table and a level, searches and sorts areas, compares two of them, and downloads
the selection. Vega-Lite draws it, with its scripts inlined.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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


def write_explorer(
    release: Path,
    path: Path,
    *,
    title: str,
    guarantee: str,
    labels: Mapping[str, str] | None = None,
    geometry: Path | None = None,
) -> None:
    """Write the page of a release, which names the levels that have too many areas for it.

    Args:
        release: The folder of the release, with its `tables`.
        path: Path of the page.
        title: Title of the release. guarantee: Its guarantee, in a sentence.
        labels: Descriptions of variables, by name.
        geometry: Boundaries of areas, as a file or a folder of them; None for no map.

    Raises:
        InputRefused: The release has no tables of areas.
    """
    tables = released_tables(release)
    if not tables:
        raise InputRefused(f"{release} has no tables of areas, which a page could show.")
    found = [level for table in tables for level in counts_by_level(table, labels or {})]
    found.sort(key=lambda level: level.figures["count"].size)
    kept = [level for level in found if len(level.codes) <= MOST_AREAS]
    drawn = {} if geometry is None else _boundaries(geometry, kept)
    while True:
        content = {"levels": list(map(_content, kept)), "boundaries": drawn}
        page = render_page(
            "dissemination/templates/explorer.html.j2",
            title=title,
            guarantee=guarantee,
            stamp=tables[0].stamp,
            none=NONE,
            script=_vega(),
            # A closing tag in a name must not end the script.
            content=json.dumps(content, ensure_ascii=False).replace("</", "<\\/"),
            left_out=sorted({level.level for level in found if level not in kept}),
        )  # fmt: skip
        if len(page.encode()) <= MOST_BYTES or len(kept) == 1:
            break
        kept.pop()
    write_text(path, page)


def _content(level: LevelCounts) -> dict[str, Any]:
    """A level as the page's script reads it."""
    names = ("table", "level", "codes", "names", "variables")
    figures = {"counts": "count", "lower": "lower", "upper": "upper"}
    return {name: getattr(level, name) for name in names} | {
        name: level.listed(figure) for name, figure in figures.items()
    }


def _vega() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # Its stub is wrong.
    return script.replace("</script", "<\\/script")


def _boundaries(geometry: Path, levels: Sequence[LevelCounts]) -> dict[str, dict[str, Any]]:
    """Simplified shapes by level and code, as coordinates of GeoJSON; of polygons alone."""
    from shapely import get_coordinates, get_parts, get_rings

    found: dict[str, dict[str, Any]] = {}
    for layer in read_shapes(geometry, codes_by_level(levels)):
        rings = {code: get_rings(get_parts(own)) for code, own in layer.shapes.items()}
        points = get_coordinates(np.concatenate([*rings.values()]))
        step = float(np.ptp(points, axis=0).max()) * TOLERANCE
        # Degrees of longitude are shorter than degrees of latitude.
        in_degrees = layer.crs is None or layer.crs.is_geographic
        narrow = math.cos(math.radians(points[:, 1].mean())) if in_degrees else 1.0
        found[layer.level] = {
            code: [_simplify_ring(get_coordinates(ring), step, narrow) for ring in own]
            for code, own in rings.items()
            if len(own)
        }
    return found


def _simplify_ring(ring: np.ndarray, step: float, narrow: float) -> list[list[float]]:
    """A ring on a grid of steps, without repeated points, as on a plane map."""
    steps = np.round(ring / step).astype(np.int64)
    moved = np.any(np.diff(steps, axis=0, prepend=steps[:1] - 1), axis=1)
    points = steps[moved] * step * [narrow, 1.0]
    # A ring is closed and has at least the points of a triangle.
    closed = points if len(points) > 3 else ring * [narrow, 1.0]
    return [[float(f"{x:.7g}"), float(f"{y:.7g}")] for x, y in closed]
