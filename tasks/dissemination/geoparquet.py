"""Tables of a release as GeoParquet 1.1: a row for each area, with its geometry as WKB.

A file has one level of one table, as one layer of a map. The file's metadata `geo` follow the
specification; geometry and system of coordinates are taken from the input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..runs.stamps import write_parquet
from ..tables.geometry import Shapes, read_shapes
from .released_tables import (
    SUMMARY_LEVELS,
    LevelCounts,
    codes_by_level,
    counts_by_level,
    released_tables,
)

VERSION = "1.1.0"
GEOMETRY = "geometry"


def write_geoparquet(release: Path, geometry: Path, labels: Mapping[str, str]) -> list[Path]:
    """Write every level of every table that has geometry, into the folder `geo` of a release.

    Areas without geometry have none in the file.

    Args:
        release: The folder of the release, with its `tables`.
        geometry: Boundaries of areas, as a file or a folder of them.
        labels: Labels of variables, by name.

    Returns:
        The files.

    Raises:
        InputRefused: Geometry cannot be read.
    """
    levels = [own for table in released_tables(release) for own in counts_by_level(table, labels)]
    files = []
    for layer in read_shapes(geometry, codes_by_level(levels)):
        for own in levels:
            if own.level == layer.level:
                table = "" if own.table == SUMMARY_LEVELS else f"{own.table}_"
                name = f"{table}{own.level}".replace(" ", "_").replace("/", "_")
                files.append(release / "geo" / f"{name}.parquet")
                files[-1].parent.mkdir(exist_ok=True)
                # Arrow pads a dictionary with previous contents of the memory.
                write_parquet(files[-1], table_of(own, layer), use_dictionary=False)
    return files


def table_of(counts: LevelCounts, layer: Shapes) -> pa.Table:
    """One level of a table with its geometry: code, name, then count and margin by variable."""
    from shapely import to_wkb, union_all

    shapes = {code: union_all(own) for code, own in layer.shapes.items() if code in counts.codes}
    columns: dict[str, Any] = {
        "code": pa.array(counts.codes, pa.string()),
        "name": pa.array(counts.names, pa.string()),
    }
    n = len(counts.variables)
    for number, variable in enumerate(counts.variables):
        for name, values in (
            (variable, counts.counts),
            (f"{variable}, lower", counts.lower),
            (f"{variable}, upper", counts.upper),
        ):
            if values:
                columns[name] = pa.array(values[number::n], pa.int64())
    columns[GEOMETRY] = pa.array(
        [to_wkb(shapes[code]) if code in shapes else None for code in counts.codes], pa.binary()
    )
    geo = {
        "version": VERSION,
        "primary_column": GEOMETRY,
        "columns": {
            GEOMETRY: {
                "encoding": "WKB",
                "geometry_types": sorted({shape.geom_type for shape in shapes.values()}),
                "crs": None if layer.crs is None else layer.crs.to_json_dict(),
            }
        },
    }
    return pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})
