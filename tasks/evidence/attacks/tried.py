"""Every attack by its name, tried on a release and kept as rows of figures.

Measures begin with the attack's name; a baseline's have "baseline of " before it. Areas are rebuilt
in pieces, concurrently; the result of each is kept until all are graded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from ...census.queries import marginal_query
from ...runs.directory import RunDirectory
from ...runs.objects import read_arrays, write_arrays
from ..ingest import Draw, figures_file, piece_file, population_of, sizes_of_levels, tables_file
from ..methods.publish import neighbour_tables, read_tables, write_figures
from ..settings import EvidenceSettings
from . import canaries, differencing, membership, rebuilding
from .rebuilding import Rebuilt
from .reconstruction import Reconstruction
from .release import Release, Row

ATTACKS: Mapping[str, Callable[[Release], Iterable[Row]]] = {
    differencing.DIFFERENCING: differencing.difference,
    differencing.AVERAGING: differencing.average,
    membership.SWAPS: membership.detect_swaps,
    canaries.NAME: canaries.membership_inference,
}
"""All but the reconstruction, whose pieces are graded."""
PIECE = 8_192
"""Most areas of a piece. The result depends on the division into pieces, but not on the worker of
each."""


def pieces_of(run: RunDirectory, settings: EvidenceSettings) -> int:
    """Number of pieces of the areas that are rebuilt, once the people have been read."""
    published = {level for table in settings.published_tables for level in table.levels}
    sizes = sizes_of_levels(run)
    n_areas = max(sizes[level] for level in published)
    return -(-min(n_areas, settings.evidence.blocks or n_areas) // PIECE)


def rebuild_piece(run: RunDirectory, settings: EvidenceSettings, draw: Draw, piece: int) -> Path:
    """Rebuild a piece of the areas of a release, and keep the result."""
    part = (piece, pieces_of(run, settings))
    found = rebuilding.rebuilt(_release(run, settings, draw, part))
    return write_arrays(piece_file(run, draw, piece).with_suffix(""), asdict(found))


def try_attack(run: RunDirectory, settings: EvidenceSettings, draw: Draw, name: str) -> Path:
    """Try one attack on a release, and keep its figures; a reconstruction is of pieces."""
    release = _release(run, settings, draw)
    path = figures_file(run, draw, name)
    if name == rebuilding.NAME:
        pieces = range(pieces_of(run, settings))
        found = [_read_piece(piece_file(run, draw, piece)) for piece in pieces]
        write_figures(path, rebuilding.grade_reconstruction(release, found))
    else:
        write_figures(path, ATTACKS[name](release))
    return path


def _read_piece(path: Path) -> Rebuilt:
    sides = read_arrays(path.with_suffix(""))
    return Rebuilt(**{side: Reconstruction(**own) for side, own in sides.items()})


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
