"""The parameters directory: `config.json` and the four specification files, read once per run.

A run keeps a copy of the files in its directory, so that every step works with the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runs.errors import InputRefused, refused
from ...runs.files import sha256_of_file, write_text
from ...tables.sources import InputFile, is_url, read_public_text
from .mechanism import (
    CONFIG_FILE,
    NOTHING_WANTED,
    OF_PERSONS,
    ConfigKeys,
    MechanismParameters,
    WantedMargins,
    mechanism_parameters,
    read_config,
)
from .specification import (
    SPECIFICATION_FILES,
    Specification,
    SpecificationError,
    parse_specification,
)

SETTINGS_SECTION = "[mechanism]"

DEFAULTS: dict[str, Any] = {"reader": "csv"}
"""Keys that no setting stands for; where there is no `config.json` they are these."""


def read_specification(directory: str) -> Specification:
    """The specification in a folder; raises InputRefused with a sentence about the first fault."""
    _refuse_missing(directory)
    texts = {name: _read(directory, name) for name in SPECIFICATION_FILES}
    with refused(of=SpecificationError):
        return parse_specification(texts)


def read_parameters(
    directory: str,
    overrides: Mapping[str, Any],
    wanted: WantedMargins = NOTHING_WANTED,
    *,
    infinite: bool = False,
    keys: ConfigKeys = OF_PERSONS,
) -> MechanismParameters:
    """The mechanism's parameters: `config.json` of a folder, if there is one, under the overrides.

    `overrides` has keys of `config.json`; those of the thresholds are merged one by one. Raises
    InputRefused with one sentence about the first fault.
    """
    _refuse_missing(directory)
    sources = [CONFIG_FILE] if _has_config(directory) else []
    if overrides or not sources:
        sources.append(SETTINGS_SECTION)
    with refused(of=SpecificationError):
        config = DEFAULTS
        if _has_config(directory):
            config = read_config(_read(directory, CONFIG_FILE))
        thresholds = config.get(keys.thresholds, {})
        config = {**config, **overrides}
        if keys.thresholds in overrides and isinstance(thresholds, dict):
            config[keys.thresholds] = thresholds | overrides[keys.thresholds]
        name = " and ".join(sources)
        return mechanism_parameters(config, name, wanted, infinite=infinite, keys=keys)


def copy_parameters(directory: str, to: Path) -> None:
    """Copy the parameters' files into a folder of a run."""
    names = [*SPECIFICATION_FILES, *([CONFIG_FILE] if _has_config(directory) else [])]
    for name in names:
        write_text(to / name, _read(directory, name))


def parameters_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of the files that `copy_parameters` wrote."""
    listed = [f"{path.name} {sha256_of_file(path)}" for path in sorted(folder.iterdir())]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()


def _refuse_missing(directory: str) -> None:
    """Raise InputRefused for a folder that is not there."""
    if not is_url(directory) and not Path(directory).is_dir():
        raise InputRefused(
            f"input.parameters: {directory} is no folder; name that of the specification files."
        )


def _has_config(directory: str) -> bool:
    return is_url(directory) or (Path(directory) / CONFIG_FILE).exists()


def _read(directory: str, name: str) -> str:
    return read_public_text(InputFile("parameters", f"{directory.rstrip('/')}/{name}", name))
