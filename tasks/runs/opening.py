"""How every piece of work opens its run, and how what it made is described."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conditions import refuse_altered
from .directory import RunDirectory
from .files import sha256_of_file
from .handles import Artifact, Made
from .settings import ProductSettings
from .settings_files import frozen_settings

Model = type[ProductSettings] | Callable[[RunDirectory], type[ProductSettings]]
"""The model of a run's settings, or what tells it of the run."""


def opened(
    run_root: str | Path, model: Model | None
) -> tuple[RunDirectory, ProductSettings | None]:
    """The run at `run_root` and the settings it has frozen; None without a `model`.

    Every step reads its run through here. Raises InputRefused if the settings cannot be read or
    have been edited since the run began, or if a file that decides what is drawn is not the one
    that was charged.
    """
    run = RunDirectory(Path(run_root))
    if run.manifest.exists():
        run.refuse_edited_settings()
        refuse_altered(run)
    if model is None:
        return run, None
    own = model if isinstance(model, type) else model(run)
    return run, frozen_settings(own, run.settings)


def artifact_of(run: RunDirectory, made: Made, seconds: float) -> Artifact:
    """The handle of what a step made or found in `seconds`.

    Only public files get a digest: of folders, and of what is confidential, the path is told.
    """
    path, digest = made.path, ""
    if isinstance(path, Path):
        if path.is_file() and not path.is_relative_to(run.confidential):
            digest = sha256_of_file(path)
        path = str(path.relative_to(run.root))
    return Artifact(path, digest, seconds, made.reused, tuple(made.facts.items()))
