"""The files of a comparison; its people and tables, read once and kept for every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..census.counting import People
from ..census.queries import marginal_query
from ..runs.directory import RunDirectory
from ..runs.names import below
from ..runs.objects import read_arrays
from .settings import EvidenceSettings
from .tables import Places, Population, RequestedTable, ancestors


@dataclass(frozen=True)
class Draw:
    """One release: of a method at a strength, by their names and position, under a number."""

    method: str
    strength: int
    number: int

    def __str__(self) -> str:
        return f"{self.method}-{self.strength + 1}-{self.number}"


def comparison_folder(run: RunDirectory) -> Path:
    """Folder of files that are made again if damaged, from input that may be disclosed."""
    return run.root / "evidence"


def dataset_folder(run: RunDirectory) -> Path:
    """The input as the product keeps it."""
    return comparison_folder(run) / "dataset"


def people_file(run: RunDirectory) -> Path:
    """The people, and the entities of every level."""
    return comparison_folder(run) / "people.json"


def tables_file(run: RunDirectory, draw: Draw) -> Path:
    """The tables that a method has published."""
    return below(comparison_folder(run) / "published", str(draw)) / "tables.npz"


def figures_file(run: RunDirectory, draw: Draw, what: str) -> Path:
    """File of figures about a release: its accuracy, or an attack's outcome."""
    return below(comparison_folder(run) / "found", str(draw)) / f"{what}.json"


def piece_file(run: RunDirectory, draw: Draw, piece: int) -> Path:
    """A piece of the areas of a release, rebuilt."""
    return below(run.confidential / "rebuilt", str(draw)) / f"{piece}.json"


def evidence_file(run: RunDirectory) -> Path:
    """All figures."""
    return run.report.parent / "evidence.csv"


def levels_of(settings: EvidenceSettings) -> list[str]:
    """The levels of all tables and of swapping, as they come."""
    named = [level for table in settings.published_tables for level in table.levels]
    return list(dict.fromkeys([*settings.evidence.regions, *named]))


def population_of(run: RunDirectory, settings: EvidenceSettings) -> Population:
    """The population of a run that has been read."""
    comparison = settings.evidence
    schema = settings.CENSUS.schema(settings.product_settings, comparison.universe)
    found = read_arrays(people_file(run).with_suffix(""))
    people = People(*found["people"]).in_households(schema.cells_where(comparison.households))
    places = _with_parents(found["levels"])
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
    risk = marginal_query(schema, comparison.risk).row_of_cell
    known, learned = (
        marginal_query(schema, query).row_of_cell if query else None
        for query in (comparison.known, comparison.learned)
    )
    # Without a condition swapped households agree in size alone.
    agree = schema.cells_where(comparison.agree) & bool(comparison.agree)
    return Population(people, tables, by_size, risk, agree, known, learned)


def _with_parents(found: Mapping[str, tuple[np.ndarray, Sequence[str]]]) -> dict[str, Places]:
    """Every level with the entities of the smallest level that is larger and has them whole."""
    bare = {
        level: Places(level, entity, tuple(codes), None, np.full(len(codes), -1, dtype=np.int64))
        for level, (entity, codes) in found.items()
    }
    placed = {}
    for level, own in bare.items():
        larger = sorted((o for o in bare.values() if len(o) < len(own)), key=len, reverse=True)
        parents = ((other.level, ancestors(own, other)) for other in larger)
        above, parent = next((it for it in parents if it[1] is not None), (None, own.parent))
        placed[level] = replace(own, parent_level=above, parent=parent)
    return placed
