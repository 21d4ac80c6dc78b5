"""The files of a comparison; its people and tables, read once and kept for every step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..census.counting import People
from ..census.queries import marginal_query
from ..runs.directory import RunDirectory
from ..runs.files import replacing
from ..runs.names import below
from .settings import EvidenceSettings
from .tables import Places, Population, RequestedTable, ancestors


@dataclass(frozen=True)
class Draw:
    """One release: of a method at a strength, by their names and position, under a number."""

    method: str
    strength: int
    number: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.method}-{self.strength + 1}-{self.number}"


def comparison_folder(run: RunDirectory) -> Path:
    """Folder of files that are made again if damaged, from input that may be disclosed."""
    return run.root / "evidence"


def dataset_folder(run: RunDirectory) -> Path:
    """The input as the product keeps it."""
    return comparison_folder(run) / "dataset"


def people_file(run: RunDirectory) -> Path:
    """The people, and the entities of every level."""
    return comparison_folder(run) / "people.npz"


def tables_file(run: RunDirectory, draw: Draw) -> Path:
    """The tables that a method has published."""
    return below(comparison_folder(run) / "published", draw.name) / "tables.npz"


def figures_file(run: RunDirectory, draw: Draw, what: str) -> Path:
    """File of figures about a release: its accuracy, or an attack's outcome."""
    return below(comparison_folder(run) / "found", draw.name) / f"{what}.json"


def piece_file(run: RunDirectory, draw: Draw, piece: int) -> Path:
    """A piece of the areas of a release, rebuilt."""
    return below(run.confidential / "rebuilt", draw.name) / f"{piece}.npz"


def evidence_file(run: RunDirectory) -> Path:
    """All figures."""
    return run.report.parent / "evidence.csv"


_CODES = "codes "
"""Begins the names of arrays of codes."""


def read_population(run: RunDirectory, settings: EvidenceSettings) -> Path:
    """Read the people and the entities of every level that the settings name, and keep them.

    Raises InputRefused for input that breaks a rule.
    """
    own, folder = settings.product_settings, dataset_folder(run)
    people = settings.CENSUS.read(own, settings.evidence.universe, folder)
    arrays: dict[str, Any] = {
        "area": people.area,
        "cell": people.cell,
        "household": people.household,
    }
    for level in levels_of(settings):
        entity, codes = settings.CENSUS.entities(own, folder, level)
        arrays[f"entity {level}"] = np.asarray(entity, dtype=np.int64)
        arrays[_CODES + level] = np.array(list(codes), dtype=np.str_)
    path = people_file(run)
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def sizes_of_levels(run: RunDirectory) -> dict[str, int]:
    """Entities of every level of a run that has been read."""
    with np.load(people_file(run)) as kept:
        return {
            name.removeprefix(_CODES): len(kept[name])
            for name in kept.files
            if name.startswith(_CODES)
        }


def levels_of(settings: EvidenceSettings) -> list[str]:
    """The levels of all tables and of swapping, as they come."""
    named = [level for table in settings.published_tables for level in table.levels]
    return list(dict.fromkeys([*settings.evidence.regions, *named]))


def population_of(run: RunDirectory, settings: EvidenceSettings) -> Population:
    """The population of a run that has been read."""
    comparison = settings.evidence
    schema = settings.CENSUS.schema(settings.product_settings, comparison.universe)
    with np.load(people_file(run)) as kept:
        people = People(kept["area"], kept["cell"], kept["household"])
        found = {
            level: (kept[f"entity {level}"], tuple(kept[_CODES + level].tolist()))
            for level in levels_of(settings)
        }
    people = people.in_households(schema.cells_where(comparison.households))
    places = _with_parents(found)
    tables = [
        RequestedTable(
            table.name,
            marginal_query(schema, table.query),
            schema.cells_where(table.where),
            places[level],
        )
        for table in settings.published_tables
        for level in sorted(table.levels, key=lambda level: len(places[level]))
    ]
    regions = comparison.regions or tuple(levels_of(settings))
    by_size = sorted((places[level] for level in dict.fromkeys(regions)), key=len)
    if not comparison.regions:
        by_size = [own for own in by_size if (own.entity >= 0).all()]
        by_size = [own for own in by_size if len(own) > 1][:-1] or by_size[-1:]
    agree = schema.cells_where(comparison.agree) if comparison.agree else None
    return Population(
        people,
        tables,
        by_size,
        marginal_query(schema, comparison.risk).row_of_cell[people.cell],
        np.zeros(len(people), dtype=bool) if agree is None else agree[people.cell],
    )


def _with_parents(found: dict[str, tuple[np.ndarray, tuple[str, ...]]]) -> dict[str, Places]:
    """Every level with the entities of the smallest level that is larger and has them whole."""
    bare = {
        level: Places(level, entity, codes, None, np.full(len(codes), -1, dtype=np.int64))
        for level, (entity, codes) in found.items()
    }
    placed = {}
    for level, own in bare.items():
        placed[level] = own
        larger = sorted((o for o in bare.values() if len(o) < len(own)), key=len, reverse=True)
        for other in larger:
            parent = ancestors(own, other)
            if parent is not None:
                placed[level] = replace(own, parent_level=other.level, parent=parent)
                break
    return placed
