"""The step that makes one release of a method."""

from __future__ import annotations

from ...products.registry import settings_of
from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..paths import Draw, tables_file
from ..settings import EvidenceSettings
from .files import publish_draw


@step(
    "publish tables",
    settings_of,
    run_name="publish-{method}-{strength}-{number}",
    made_at=lambda run, _settings, *draw: tables_file(run, Draw(*draw)),
)
def publish_tables(
    run: RunDirectory, settings: EvidenceSettings, method: str, strength: int, number: int
) -> Made:
    """Publish all tables by a method at one strength, and compare them with the truth."""
    return made(publish_draw(run, settings, Draw(method, strength, number)))
