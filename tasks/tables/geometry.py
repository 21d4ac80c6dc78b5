"""Boundaries of areas, for maps: GeoParquet, or a folder of shapefiles, read with geopandas.

Geometry is public and affects only maps. A file is a layer of areas; a folder has a layer for each
of its files. Codes in a layer identify its areas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..runs.errors import InputRefused

ENDINGS = (".parquet", ".geoparquet", ".shp", ".gpkg", ".geojson")
FEWEST_KNOWN = 0.5
"""Part of a layer's codes, or of a level's, that must be known for the layer to be of the level."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Shapes of the areas of one level by code, of which one may have several.

    crs : their system of coordinates, as pyproj has it; None where the file says none.
    """

    level: str
    shapes: Mapping[str, Sequence[Any]]
    crs: Any


def refuse_unfit_geometry(path: str | None) -> None:
    """Raise InputRefused for geometry that is not there, or that nothing here reads."""
    if path is None:
        return
    if find_spec("geopandas") is None:
        raise InputRefused(
            "input.geometry needs geopandas: install spineflow[maps], or take the setting out."
        )
    if not _files(Path(path)):
        raise InputRefused(
            f"input.geometry: {path} is neither a file of areas nor a folder of them; give "
            "GeoParquet or a folder of shapefiles."
        )


def read_shapes(path: Path, levels: Mapping[str, Collection[str]]) -> list[Shapes]:
    """The layers of a file or folder that match a level, by the codes of the levels.

    Each layer gets the level and the column of codes that match best; features with equal codes are
    one area. Layers without a matching level are skipped. Raises InputRefused for files that cannot
    be read.
    """
    found = []
    for file in _files(path):
        frame = _read(file)
        fit = _best_fit(frame, levels)
        if fit is not None:
            level, column = fit
            known = set(levels[level])
            shapes: dict[str, list[Any]] = {}
            for code, shape in zip(_texts(frame[column]), frame.geometry, strict=True):
                if code in known and shape is not None and not shape.is_empty:
                    shapes.setdefault(code, []).append(shape)
            found.append(Shapes(level, shapes, frame.crs))
    return found


def _files(path: Path) -> list[Path]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in files if file.suffix.lower() in ENDINGS and file.is_file()]


def _read(file: Path) -> Any:
    import geopandas

    read = geopandas.read_parquet if "parquet" in file.suffix.lower() else geopandas.read_file
    try:
        return read(file)
    # Whatever a broken file does to its reader.
    except Exception:
        raise InputRefused(
            f"input.geometry: {file.name} cannot be read as areas; take it out of the folder, or "
            "give a file that geopandas reads."
        ) from None


def _best_fit(frame: Any, levels: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """The level and the column of codes that agree best; None where none agree well."""
    best, best_share = None, FEWEST_KNOWN
    for column in frame.columns:
        if column == frame.geometry.name:
            continue
        codes = set(_texts(frame[column]))
        for level, known in levels.items():
            both = len(codes & set(known))
            # A county's run has few of a nation's areas, but all of its own are in the layer.
            share = max(both / max(len(codes), 1), both / max(len(known), 1)) if both else 0.0
            if share > best_share or (share == best_share and best is None):
                best, best_share = (level, column), share
    return best


def _texts(column: Any) -> list[str]:
    return [str(value).strip() for value in column]
