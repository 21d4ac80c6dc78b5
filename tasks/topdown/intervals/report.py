"""Writing the intervals that somebody asks for of a finished run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ...census.invariants import read_geography
from ...census.queries import MarginalQuery, in_schema_order, marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused, refused
from ..paths import geography_file
from ..settings import TopdownSettings
from .area_lists import KnownBlocks, NamedAreas, listed_areas, points_of, read_areas, read_pairs
from .run_posterior import RunPosterior
from .spine_posterior import Listener, nobody
from .tables import (
    Asked,
    Written,
    area_intervals,
    comparisons,
    intervals_of_geolevels,
    write_intervals,
)


def write_run_intervals(
    run: RunDirectory,
    settings: TopdownSettings,
    queries: Sequence[str],
    *,
    universe: str | None = None,
    geolevel: str | None = None,
    entities: str | Path | pd.DataFrame | Mapping[str, Any] | None = None,
    share_of: str | None = None,
    compare: str | Path | None = None,
    level: float = 0.9,
    out: str | Path | None = None,
    listener: Listener = nobody,
) -> Iterator[Written]:
    """Write intervals of one universe; yields each file, and tells `listener` what is being done.

    `entities` is a file of areas, or areas as `listed_areas` takes them. Without `out` the files go
    to `intervals/<universe>/<geolevel>.parquet` of the run, for every geolevel or the one asked
    for, or to `intervals/entities.parquet`; those of pairs, which the file `compare` lists, to
    files whose names end in `_comparisons.parquet`.

    Raises InputRefused for a query, a universe, a geolevel or a block that the run does not have,
    for a level that is no probability, for `out` without one geolevel or areas, and for pairs
    without either or with shares.
    """
    universe = universe or settings.run.universes[0]
    if universe not in settings.run.universes:
        raise InputRefused(
            f"The run has no universe {universe!r}; it has {', '.join(settings.run.universes)}."
        )
    if not 0.0 < level < 1.0:
        raise InputRefused(f"A level of {level} is no probability; 0.9 and 0.95 are usual.")
    is_one = geolevel is not None or entities is not None
    if out is not None and not is_one:
        raise InputRefused("One file takes one geolevel; give --geolevel or --entities with --out.")
    if compare is not None and not is_one:
        raise InputRefused(
            "Pairs are of geounits of one geolevel or of areas; give --geolevel or --entities with "
            "--compare."
        )
    if compare is not None and share_of is not None:
        raise InputRefused("Pairs have no shares; leave --share-of or --compare out.")
    schema = settings.schema_of(universe)
    asked = Asked(
        schema,
        tuple(_query(schema, name) for name in queries),
        level,
        None if share_of is None else _query(schema, share_of),
    )
    listed = None if entities is None else _listed(run, settings, entities)
    pairs = None if compare is None else read_pairs(Path(compare), settings.written)
    found = RunPosterior.read(run, settings, universe, asked.seen, listener)
    folder = run.root / "intervals"
    areas = None if listed is None else NamedAreas.listed(*listed, found.spine.block_geocode)
    tables: Iterable[tuple[Path, Iterator[pa.Table]]]
    if pairs is not None and compare is not None:
        stem = folder / "entities"
        if areas is None:
            areas = NamedAreas.of_geolevel(found.spine, _known_geolevel(found, str(geolevel)))
            stem = folder / universe / str(geolevel)
        first, second = (areas.numbers(pairs[name], Path(compare)) for name in pairs)
        path = stem.with_name(f"{stem.name}_comparisons.parquet")
        tables = [(path, comparisons(found, asked, areas, first, second))]
    elif areas is not None:
        tables = [(folder / "entities.parquet", area_intervals(found, asked, areas))]
    else:
        names = found.spine.names if geolevel is None else [_known_geolevel(found, geolevel)]
        made = intervals_of_geolevels(found, asked, names)
        tables = ((folder / universe / f"{name}.parquet", table) for name, table in made)
    for path, table in tables:
        place = Path(out) if out else path
        yield write_intervals(place, table, is_private=settings.is_private)


def _known_geolevel(found: RunPosterior, name: str) -> str:
    if name not in found.spine.names:
        raise InputRefused(
            f"The spine has no geolevel {name!r}; it has {', '.join(found.spine.names)}."
        )
    return name


def _listed(
    run: RunDirectory,
    settings: TopdownSettings,
    entities: str | Path | pd.DataFrame | Mapping[str, Any],
) -> tuple[pd.DataFrame, KnownBlocks]:
    """Areas as lists of blocks, and the blocks that the run knows; their points are those of the
    last geolevel's entities.
    """
    declared = settings.compiled_census.geography
    last = settings.compiled_census.code_column
    of_file = None
    if isinstance(entities, str | Path):
        of_file = read_areas(Path(entities), last, settings.written)
    geography = read_geography(geography_file(run))
    known = KnownBlocks.of(geography, last)
    if of_file is not None:
        return of_file, known
    entity = declared.entities.get(declared.geolevels[-1])
    points = None
    if entity is not None and entity.latitude is not None and entity.longitude is not None:
        points = points_of(geography, entity.latitude, entity.longitude)
    return listed_areas(entities, points, last), known


def _query(schema: Schema, name: str) -> MarginalQuery:
    with refused():
        return marginal_query(schema, in_schema_order(schema, name))
