"""The steps of a comparison, and every attack by its name.

Measures begin with the attack's name; a baseline's have "baseline of " before it. Areas are rebuilt
in pieces, concurrently; the result of each is kept until all are graded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from ..census.queries import marginal_query
from ..products.registry import settings_of
from ..runs import files
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created
from ..runs.objects import read_arrays, write_arrays
from ..runs.steps import step
from .attacks import differencing, membership, rebuilding
from .attacks.rebuilding import Rebuilt
from .attacks.reconstruction import Reconstruction
from .attacks.release import Release, Row
from .ingest import (
    Draw,
    figures_file,
    people_file,
    piece_file,
    population_of,
    read_population,
    sizes_of_levels,
    tables_file,
)
from .methods.publish import neighbour_tables, publish_draw, read_tables, write_figures
from .release import page, release_figures, restore_figures, write_evidence
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
    """Read and check the input, and keep its people and areas."""
    return created(read_population(run, settings))


@step(
    "publish tables",
    settings_of,
    run_name="publish-{draw}",
    made_at=lambda run, _settings, draw: tables_file(run, draw),
)
def publish_tables(run: RunDirectory, settings: EvidenceSettings, draw: Draw) -> Made:
    """Publish all tables by a method at one strength, and compare them with the truth."""
    return created(publish_draw(run, settings, draw))


@step(
    "rebuild areas",
    settings_of,
    run_name="rebuild-{draw}-{piece}",
    made_at=lambda run, _settings, draw, piece: piece_file(run, draw, piece),
)
def rebuild(run: RunDirectory, settings: EvidenceSettings, draw: Draw, piece: int) -> Made:
    """Rebuild a piece of the areas of a release from its tables."""
    found = rebuilding.rebuilt(_release(run, settings, draw, (piece, pieces_of(run, settings))))
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
    release, path = _release(run, settings, draw), figures_file(run, draw, name)
    if name == rebuilding.NAME:
        pieces = []
        for piece in range(pieces_of(run, settings)):
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
    if run.release.exists():
        restore_figures(run, settings)
    else:
        write_evidence(run, settings)
        release_figures(run)
    return created(files.write_page(run.report, page(run, settings)))


def pieces_of(run: RunDirectory, settings: EvidenceSettings) -> int:
    """Number of pieces of the areas that are rebuilt, once the people have been read."""
    published = {level for table in settings.published_tables for level in table.levels}
    sizes = sizes_of_levels(run)
    n_areas = max(sizes[level] for level in published)
    return -(-min(n_areas, settings.evidence.blocks or n_areas) // PIECE)


def _release(
    run: RunDirectory, settings: EvidenceSettings, draw: Draw, part: tuple[int, int] = (0, 1)
) -> Release:
    """A release as an attacker has it, and the truth that grades an attack."""
    population, comparison = population_of(run, settings), settings.evidence
    schema = settings.CENSUS.schema(settings.product_settings, comparison.universe)
    learned, known = (
        marginal_query(schema, query).row_of_cell if query else None
        for query in (comparison.learned, comparison.known)
    )
    return Release(
        comparison,
        draw,
        settings.methods[draw.method],
        read_tables(tables_file(run, draw), population.tables),
        population,
        learned,
        known,
        lambda people: neighbour_tables(run, settings, people, draw),
        part,
    )
