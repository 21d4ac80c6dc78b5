"""Every attack by its name, tried on a release and kept as rows of figures.

Measures begin with the attack's name; a baseline's have "baseline of " before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...census.queries import marginal_query
from ...runs.directory import RunDirectory
from ..ingest.population import population_of
from ..methods.files import read_tables, write_figures
from ..paths import Draw, figures_file, tables_file
from ..settings import EvidenceSettings
from . import combining, rebuilding, singling
from .release import Release, Row

ATTACKS: Mapping[str, Callable[[Release], Iterable[Row]]] = {
    rebuilding.NAME: rebuilding.rebuild,
    combining.DIFFERENCING: combining.difference,
    combining.AVERAGING: combining.average,
    singling.SWAPS: singling.detect_swaps,
    singling.MEMBERSHIP: singling.tell_members,
}


def try_attack(run: RunDirectory, settings: EvidenceSettings, draw: Draw, name: str) -> Path:
    """Try one attack on a release, and keep its figures."""
    population, comparison = population_of(run, settings), settings.evidence
    schema = settings.CENSUS.schema(settings.product_settings, comparison.universe)
    learned, known = (
        marginal_query(schema, query).row_of_cell if query else None
        for query in (comparison.learned, comparison.known)
    )
    release = Release(
        comparison,
        draw,
        settings.methods[draw.method],
        read_tables(tables_file(run, draw), population.tables),
        population,
        learned,
        known,
    )
    path = figures_file(run, draw, name)
    write_figures(path, ATTACKS[name](release))
    return path
