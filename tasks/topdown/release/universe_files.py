"""The microdata of a universe, in the form that its census declares."""

from __future__ import annotations

from ...census.invariants import read_geography, read_invariants
from ...runs.directory import RunDirectory
from ..measurement.public_answers import area_counts
from ..paths import geography_file, invariants_file
from ..settings import TopdownSettings
from .declared_files import WrittenFiles, write_declared_microdata
from .described import description, write_described_universe
from .microdata import block_estimate_parts, write_microdata


def write_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> WrittenFiles:
    """Write the microdata of a universe beside what else is to be checked before its release: in
    the layout that the census declares, with what another universe tells of its records, or with
    labels of areas and levels.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    folder, declared = run.unchecked_release, census.universes[universe].declared
    folder.mkdir(exist_ok=True)
    if declared.microdata is None:
        areas = read_geography(geography_file(run))
        return write_declared_microdata(
            area_counts(run, universe, schema.n_cells, len(areas)),
            areas,
            census.geolevels,
            schema,
            folder,
            count=declared.count,
            is_private=settings.is_private,
        )
    told = description(settings, census.universes[universe])
    if told is not None:
        return write_described_universe(run, settings, census.universes[universe], *told)
    has_further = declared.microdata.further is not None
    return write_microdata(
        block_estimate_parts(run, universe, schema.n_cells),
        schema,
        folder,
        read_invariants(invariants_file(run)) if has_further else None,
        census=census,
        is_private=settings.is_private,
    )
