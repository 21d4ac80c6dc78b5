"""The steps that make one population of three releases of a run of several products."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ..tasks.population.checks.expected import expected_population
from ..tasks.population.estimation.blocks import populate_county
from ..tasks.population.estimation.pieces import (
    blocks_of,
    made_file,
    piece_names,
    read_piece,
    released_file,
    write_members,
    write_release_records,
)
from ..tasks.population.ingest.released import Sources, read_released
from ..tasks.population.release.population import population_of_pieces, write_population
from ..tasks.products.acceptance import accept
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Made, created
from ..tasks.runs.steps import step
from ..tasks.topdown.settings import TopdownSettings
from ..validation.population.run_checks import check_population
from .products_settings import ProductsSettings
from .stages import finish, stage


def make_one_population(run: RunDirectory) -> None:
    """Submit the stages that write the released records county by county, make the counties side by
    side, write them together and check them."""
    root = str(run.root)
    with stage("gather", "records for one population"):
        gathered = gather_released.submit(root)
    finish([gathered])
    with stage("populate", "counties of one population"):
        made = [populate.submit(root, name, wait_for=[gathered]) for name in piece_names(run)]
    with stage("population"):
        population = make_population.submit(root, wait_for=made)
    finish([population])


def _released_file(run: RunDirectory, _settings: ProductsSettings) -> Path:
    return released_file(run, "households")


def _made_file(run: RunDirectory, _settings: ProductsSettings, piece: str) -> Path:
    return made_file(run, piece)


@step("gather released", ProductsSettings, run_name="gather-released", made_at=_released_file)
def gather_released(run: RunDirectory, settings: ProductsSettings) -> Made:
    """Write the released persons and households, partitioned into pieces."""
    source = read_released(sources_of(run, _names(settings)))
    return created(write_release_records(run, source.blocks, blocks_of(source)))


@step("populate", ProductsSettings, run_name="populate-{piece}", made_at=_made_file)
def populate(run: RunDirectory, _settings: ProductsSettings, piece: str) -> Made:
    """Make households of the persons of a county."""
    return created(write_members(run, piece, populate_county(read_piece(run, piece))))


@step("make population", ProductsSettings, run_name="one population")
def make_population(run: RunDirectory, settings: ProductsSettings) -> Made:
    """Write one population of all pieces next to the index of the releases, and check it: a failed
    check withholds it."""
    redistricting, *_ = names = _names(settings)
    sources = sources_of(run, names)
    declared = cast(TopdownSettings, settings.products.chosen()[redistricting]).compiled_census
    folder = run.unchecked_release
    paths = write_population(population_of_pieces(run, sources), folder)
    expected = expected_population(folder, sources.redistricting.release, declared)
    accept(run, settings, check_population(expected))
    return created(folder, {"files": len(paths)})


def _names(settings: ProductsSettings) -> Sequence[str]:
    """The products that become one population, redistricting first."""
    assert settings.population is not None, "others have no such steps"
    return settings.population


def sources_of(run: RunDirectory, names: Sequence[str]) -> Sources:
    """The runs of the products that become one population."""
    return Sources(*(RunDirectory(run.root / name) for name in names))
