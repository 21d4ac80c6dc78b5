"""The tables of a run's input, by the names that its census gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, model_validator

from ...runs.directory import RunDirectory
from ...runs.names import checked_file_name, did_you_mean
from ...runs.settings import FilePath, InputSettings, Refuse
from ...runs.stores import is_url
from ...tables.sources import input_files


class CensusTables(InputSettings):
    """The tables of a census, by the names that its declaration gives them.

    Those of the Census Edited File layout are persons, units and geography.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    geometry: FilePath | None = None
    """Boundaries of areas, for the report's map: GeoParquet, or a folder of shapefiles."""

    @model_validator(mode="after")
    def _are_named(self) -> Self:
        for name in self.__pydantic_extra__:
            try:
                checked_file_name(name)
            except ValueError as error:
                raise ValueError(f"has a table whose name {error}") from None
        return self

    def paths(self) -> dict[str, FilePath]:
        """The tables' paths by name."""
        return dict(self.__pydantic_extra__)

    @property
    def releases(self) -> Collection[str]:
        """Any input may be one."""
        return self.paths()

    def files(self) -> tuple[str, ...]:
        """Files and folders that hold the input, globs spelt out; of earlier runs, the release."""
        found: list[str] = []
        for name, path in self.paths().items():
            if name in self.awaited:
                continue
            earlier = RunDirectory(Path(path))
            if not is_url(path) and earlier.manifest.exists():
                found.append(str(earlier.release))
            else:
                found += [file.path for file in input_files(name, path)]
        return tuple(found)

    def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
        """These settings with `absolute` applied to every path."""
        paths = {
            name: path if name in self.awaited else absolute(path)
            for name, path in self.paths().items()
        }
        if self.geometry is not None:
            paths["geometry"] = absolute(self.geometry)
        return type(self).model_validate({"confidential": self.confidential, **paths})


def refuse_tables(
    paths: Mapping[str, str], needed: Sequence[str], refuse: Refuse, optional: Sequence[str]
) -> None:
    """Refuse tables that are missing, and settings that are no tables."""
    known = (*needed, *optional, "confidential")
    for name in paths:
        if name not in known:
            hint = did_you_mean(name, known)
            refuse(f"unknown setting 'input.{name}'{hint}; known here: {', '.join(sorted(known))}")
    for name in needed:
        if name not in paths:
            refuse(f"the setting 'input.{name}' is missing; add it, or name a preset that has it")
