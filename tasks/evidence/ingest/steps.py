"""The step that reads the census of a comparison."""

from __future__ import annotations

from ...products.registry import settings_of
from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..paths import people_file
from ..settings import EvidenceSettings
from .population import read_population


@step(
    "read people",
    settings_of,
    run_name="read people",
    made_at=lambda run, _settings: people_file(run),
)
def read_people(run: RunDirectory, settings: EvidenceSettings) -> Made:
    """Read and check the input, and keep its people and areas."""
    return made(read_population(run, settings))
