"""Settings of the estimate flow: where measurements lie, what they were made with, the estimator.

What was asked of the records, with which budget and on which spine, is not in the measurements'
files. It comes from, first found: the settings file itself and the preset that it names; the
file `measured.toml` that an export has beside its folders, or the settings of the run whose folder
is read; the production run of the nation or of Puerto Rico, as the geolevels tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...runs.errors import InputRefused
from ...runs.settings import Refuse, merged_tables, table_of
from ...runs.settings_files import settings_tree
from ..settings import TopdownSettings

if TYPE_CHECKING:
    from .layout import MeasurementFolder

MEASURED_FILE = "measured.toml"
"""Tells in an export what was measured, as settings."""

NATION, PUERTO_RICO = "pl94_2020_us", "pl94_2020_pr"

_DECLARED = ("census", "geography", "budget", "workload")
_RELEASED = ("tables", "pl94171", "margins")


class EstimateSettings(TopdownSettings):
    """All settings of an estimate run."""

    PRODUCT: ClassVar[str] = "estimate"

    @classmethod
    def completed(cls, own: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """The file's table with what the measurements tell.

        That is what they were made with, the universes that are there, whether they are stamped,
        and a name for the run. Raises InputRefused for a folder that holds something else.
        """
        path = table_of(own, "input").get("measurements")
        if not isinstance(path, str) or not (folder / path).is_dir():
            # What is missing or misspelt is told when the settings have been validated.
            unknown = {
                "preset": NATION,
                "input": {"confidential": False},
                "privacy": {"dataset": "published"},
            }
            return merged_tables(unknown, own) | {"measured": {}}
        from .layout import open_folder

        root = (folder / path).resolve()
        found = open_folder(root, _product_asked(own))
        declared = {} if "preset" in own else settings_beside(found)
        base: dict[str, Any] = {
            "input": {"confidential": False},
            "privacy": {"dataset": _dataset_of(found)},
            "run": {"universes": list(found.universes)},
        }
        if "preset" not in own and not declared:
            base["preset"] = NATION if found.has_root_of_nation else PUERTO_RICO
        if not declared and found.is_conventional:
            base["geography"] = {"spine": "conventional"}
        merged = merged_tables(merged_tables(base, cls.without_replaced(declared, own)), own)
        if "universes" not in table_of(own, "run"):
            there = [name for name in merged["run"]["universes"] if name in found.universes]
            merged["run"]["universes"] = there
        return merged | {"measured": {"not_private": found.is_stamped}}

    def refuse_what_does_nothing(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings of noise and of confidential records, of which there are none."""
        if self.input.confidential:
            refuse("input.confidential is true, but nothing that is read is confidential")
        if self.privacy.infinite or self.privacy.seed is not None:
            refuse("privacy.infinite and privacy.seed are of noise, and no noise is drawn")


def settings_beside(folder: MeasurementFolder) -> dict[str, Any]:
    """What is told beside measurements of how they were made, as tables of settings.

    An export has it in `measured.toml`, a run's own folder in the run's `settings.toml`. Raises
    InputRefused for a file that cannot be read or tells no dataset.
    """
    file = folder.root / MEASURED_FILE
    if folder.product is None and not file.exists():
        file = folder.root.parent / "settings.toml"
    if not file.is_file():
        return {}
    tree = settings_tree(file)
    if not isinstance(table_of(tree, "privacy").get("dataset"), str):
        raise InputRefused(
            f"{file} names no dataset ([privacy] dataset) whose measurements these are; restore "
            "it, or take it away and say in the settings how they were made."
        )
    return measured_settings(tree)


def measured_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a run, those that say what its measurements are and how they are used."""
    kept: dict[str, Any] = {name: tree[name] for name in _DECLARED if name in tree}
    run, release = tree.get("run", {}), tree.get("release", {})
    kept["run"] = {name: run[name] for name in ("universes", "estimator") if name in run}
    kept["release"] = {name: release[name] for name in _RELEASED if name in release}
    kept["privacy"] = {"dataset": tree["privacy"]["dataset"]}
    return kept


def _product_asked(own: Mapping[str, Any]) -> str | None:
    """Whose measurements a preset of Puerto Rico asks for, where a folder has both."""
    preset = own.get("preset")
    return "PR" if isinstance(preset, str) and preset.endswith("_pr") else None


def _dataset_of(folder: MeasurementFolder) -> str:
    """A name for the run from that of the folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.root.name).lstrip("._-")
    return name or "published"
