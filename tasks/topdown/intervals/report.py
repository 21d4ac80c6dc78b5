"""Writing the intervals that somebody asks for of a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.intervals.tables import (
    area_intervals,
    intervals_of_geolevels,
    read_areas,
    write_intervals,
)
from spineflow.tasks.topdown.settings import TopdownSettings


def write_run_intervals(
    run: RunDirectory,
    settings: TopdownSettings,
    queries: Sequence[str],
    *,
    universe: str | None = None,
    geolevel: str | None = None,
    entities: str | Path | None = None,
    level: float = 0.9,
    out: str | Path | None = None,
) -> Iterator[tuple[Path, int]]:
    """Write intervals of one universe; yields each file and its number of rows.

    Without `out` they go to `intervals/<universe>/<geolevel>.parquet` of the run, for every
    geolevel or the one asked for, or to `intervals/entities.parquet`.

    Raises InputRefused for a query, a universe or a geolevel that the run does not have, for a
    level that is no probability, and for `out` without one geolevel or a file of areas.
    """
    universe = universe or settings.run.universes[0]
    if universe not in settings.run.universes:
        raise InputRefused(
            f"The run has no universe {universe!r}; it has {', '.join(settings.run.universes)}."
        )
    if not 0.0 < level < 1.0:
        raise InputRefused(f"A level of {level} is no probability; 0.9 and 0.95 are usual.")
    if out is not None and geolevel is None and entities is None:
        raise InputRefused("One file takes one geolevel; give --geolevel or --entities with --out.")
    schema = settings.schema_of(universe)
    asked = [_query(schema, name) for name in queries]
    folder = run.root / "intervals"
    areas = None if entities is None else read_areas(Path(entities))
    found = RunPosterior.read(run, settings, universe)
    if areas is not None:
        table = area_intervals(found, schema, asked, areas, level)
        path = Path(out) if out else folder / "entities.parquet"
        write_intervals(path, table, is_private=settings.is_private)
        yield path, len(table)
        return
    names = found.spine.names if geolevel is None else [geolevel]
    for name, table in intervals_of_geolevels(found, schema, asked, names, level):
        path = Path(out) if out else folder / universe / f"{name}.parquet"
        write_intervals(path, table, is_private=settings.is_private)
        yield path, len(table)


def _query(schema: Schema, name: str) -> MarginalQuery:
    try:
        return marginal_query(schema, name)
    except ValueError as error:
        raise InputRefused(f"{error}.") from None
