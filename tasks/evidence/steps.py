"""The steps of a comparison."""

from __future__ import annotations

from ..products.registry import settings_of
from ..runs import files
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created
from ..runs.steps import step
from .attacks.tried import rebuild_piece, try_attack
from .ingest import Draw, figures_file, people_file, piece_file, read_population, tables_file
from .methods.publish import publish_draw
from .release import page, release_figures, restore_figures, write_evidence
from .settings import EvidenceSettings


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
    "attack release",
    settings_of,
    run_name="attack-{draw}-{name}",
    made_at=lambda run, _settings, draw, name: figures_file(run, draw, name),
)
def attack(run: RunDirectory, settings: EvidenceSettings, draw: Draw, name: str) -> Made:
    """Try an attack on the tables of a release, and grade it by the truth."""
    return created(try_attack(run, settings, draw, name))


@step(
    "rebuild areas",
    settings_of,
    run_name="rebuild-{draw}-{piece}",
    made_at=lambda run, _settings, draw, piece: piece_file(run, draw, piece),
)
def rebuild(run: RunDirectory, settings: EvidenceSettings, draw: Draw, piece: int) -> Made:
    """Rebuild a piece of the areas of a release from its tables."""
    return created(rebuild_piece(run, settings, draw, piece))


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
