"""The steps of a comparison, and every attack by its name.

Measures begin with the attack's name; a baseline's have "baseline of " before it. Areas are rebuilt
in pieces, concurrently; the result of each is kept until all are graded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

import numpy as np

from ..products.product import settings_of
from ..runs import files
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created, stopwatch
from ..runs.objects import read_arrays, write_arrays
from ..runs.steps import step
from .attacks import differencing, membership, rebuilding
from .attacks.rebuilding import Rebuilt
from .attacks.reconstruction import Reconstruction
from .attacks.release import Release, Row
from .ingest import (
    Draw,
    Population,
    dataset_folder,
    figures_file,
    levels_of,
    people_file,
    piece_file,
    population_of,
    tables_file,
)
from .methods.publish import (
    ACCURACY,
    ALL,
    accuracy,
    neighbour_tables,
    read_by_users,
    read_tables,
    tables_of,
    write_figures,
    write_tables,
)
from .release import page, release_figures, restore_figures
from .settings import EvidenceSettings

ATTACKS: Mapping[str, Callable[[Release], Iterable[Row]]] = {
    differencing.DIFFERENCING: differencing.difference,
    differencing.AVERAGING: differencing.average,
    membership.SWAPS: membership.detect_swaps,
    membership.NAME: membership.membership_inference,
}
"""All but the reconstruction, whose pieces are graded."""
PIECE = 8_192
"""Most areas of a piece. The result depends on the division into pieces, but not on the worker of
each."""


@step(
    "read people",
    settings_of,
    run_name="read people",
    made_at=lambda run, _settings: people_file(run),
)
def read_people(run: RunDirectory, settings: EvidenceSettings) -> Made:
    """Read and check the input, and keep its people, and the entities of every level of tables and
    of swapping.

    Raises InputRefused for input that breaks a rule.
    """
    own, folder, levels = settings.product_settings, dataset_folder(run), {}
    people = settings.CENSUS.read(own, settings.evidence.universe, folder)
    for level in levels_of(settings):
        entity, codes = settings.CENSUS.entities(own, folder, level)
        levels[level] = (np.asarray(entity, dtype=np.int64), list(codes))
    found = {"people": (people.area, people.cell, people.household), "levels": levels}
    return created(write_arrays(people_file(run).with_suffix(""), found))


@step(
    "publish tables",
    settings_of,
    run_name="publish-{draw}",
    made_at=lambda run, _settings, draw: tables_file(run, draw),
)
def publish_tables(run: RunDirectory, settings: EvidenceSettings, draw: Draw) -> Made:
    """Publish all tables by a method at one strength, and compare them with the truth."""
    population, path = population_of(run, settings), tables_file(run, draw)
    with stopwatch() as seconds:
        tables, figures = tables_of(settings, population, draw, dataset_folder(run))
        took = seconds()
    figures += accuracy(population, tables, read_by_users(population, settings.evidence))
    figures.append((ALL, "seconds", ALL, took))
    write_figures(figures_file(run, draw, ACCURACY), figures)
    write_tables(path, population.tables, tables)
    return created(path)


@step(
    "rebuild areas",
    settings_of,
    run_name="rebuild-{draw}-{piece}",
    made_at=lambda run, _settings, draw, piece: piece_file(run, draw, piece),
)
def rebuild(run: RunDirectory, settings: EvidenceSettings, draw: Draw, piece: int) -> Made:
    """Rebuild a piece of the areas of a release from its tables."""
    population = population_of(run, settings)
    part = piece, pieces_of(population, settings)
    found = rebuilding.rebuilt(_release(run, settings, population, draw, part))
    return created(write_arrays(piece_file(run, draw, piece).with_suffix(""), asdict(found)))


@step(
    "attack release",
    settings_of,
    run_name="attack-{draw}-{name}",
    made_at=lambda run, _settings, draw, name: figures_file(run, draw, name),
)
def attack(run: RunDirectory, settings: EvidenceSettings, draw: Draw, name: str) -> Made:
    """Try an attack on the tables of a release, and grade it by the truth; a reconstruction is of
    pieces."""
    population, path = population_of(run, settings), figures_file(run, draw, name)
    release = _release(run, settings, population, draw)
    if name == rebuilding.NAME:
        pieces = []
        for piece in range(pieces_of(population, settings)):
            sides = read_arrays(piece_file(run, draw, piece).with_suffix(""))
            own = {side: Reconstruction(**found) for side, found in sides.items()}
            pieces.append(Rebuilt(**own))
        write_figures(path, rebuilding.grade_reconstruction(release, pieces))
    else:
        write_figures(path, ATTACKS[name](release))
    return created(path)


@step("write page", settings_of, run_name="page")
def write_page(run: RunDirectory, settings: EvidenceSettings) -> Made:
    """Write the figures and the page; the figures are the release of a comparison.

    Released figures stay: repeating the attacks may take other seconds.
    """
    if not run.release.exists():
        release_figures(run, settings)
    restore_figures(run, settings)
    return created(files.write_page(run.report, page(run, settings)))


def pieces_of(population: Population, settings: EvidenceSettings) -> int:
    """Number of pieces of the areas that are rebuilt."""
    n_areas = len(population.smallest)
    return -(-min(n_areas, settings.evidence.blocks or n_areas) // PIECE)


def _release(
    run: RunDirectory,
    settings: EvidenceSettings,
    population: Population,
    draw: Draw,
    part: tuple[int, int] = (0, 1),
) -> Release:
    """A release as an attacker has it, and the truth that grades an attack."""
    return Release(
        settings.evidence,
        draw,
        settings.methods[draw.method],
        read_tables(tables_file(run, draw), population.tables),
        population,
        lambda people: neighbour_tables(run, settings, people, draw),
        part,
    )
