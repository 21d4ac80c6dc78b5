"""The steps that attack one release."""

from __future__ import annotations

from ...products.registry import settings_of
from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..paths import Draw, figures_file, piece_file
from ..settings import EvidenceSettings
from .tried import rebuild_piece, try_attack


@step(
    "attack release",
    settings_of,
    run_name="attack-{method}-{strength}-{number}-{name}",
    made_at=lambda run, _settings, method, strength, number, name: figures_file(
        run, Draw(method, strength, number), name
    ),
)
def attack(
    run: RunDirectory,
    settings: EvidenceSettings,
    method: str,
    strength: int,
    number: int,
    name: str,
) -> Made:
    """Try an attack on the tables of a release, and grade it by the truth."""
    return made(try_attack(run, settings, Draw(method, strength, number), name))


@step(
    "rebuild areas",
    settings_of,
    run_name="rebuild-{method}-{strength}-{number}-{piece}",
    made_at=lambda run, _settings, method, strength, number, piece: piece_file(
        run, Draw(method, strength, number), piece
    ),
)
def rebuild(
    run: RunDirectory,
    settings: EvidenceSettings,
    method: str,
    strength: int,
    number: int,
    piece: int,
) -> Made:
    """Rebuild a piece of the areas of a release from its tables."""
    return made(rebuild_piece(run, settings, Draw(method, strength, number), piece))
