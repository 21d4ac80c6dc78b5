"""One population, written and checked: files that a check refuses are not released."""

from __future__ import annotations

from pathlib import Path

from ....validation.population.run_checks import check_population
from ...census.census import Census
from ...products.acceptance import accept
from ...runs.directory import RunDirectory
from ...runs.settings import ProductSettings
from ..ingest.released import Sources
from ..release.population import population_of_pieces, write_population
from .expected import expected_population


def write_checked_population(
    run: RunDirectory,
    settings: ProductSettings,
    sources: Sources,
    redistricting: Census,
    folder: Path,
) -> list[Path]:
    """Write one population of three releases into a folder, and the outcomes of its checks, once
    its pieces are made.

    redistricting : the census of the redistricting release.
    Raises CheckFailed where a check fails.
    """
    population = population_of_pieces(run, sources)
    paths = write_population(population, folder)
    expected = expected_population(folder, sources.redistricting.release, redistricting)
    accept(run, settings, check_population(expected))
    return paths
