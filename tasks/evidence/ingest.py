"""The people of a comparison, the tables about them, and its files: people and areas are read once
and kept for every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..census.counting import People
from ..census.queries import MarginalQuery, marginal_query
from ..runs.directory import RunDirectory
from ..runs.names import below
from ..runs.objects import read_arrays
from .settings import EvidenceSettings


@dataclass(frozen=True, eq=False)
class Places:
    """The entities of a level, each a set of areas of the last geolevel.

    entity : (n_areas,) number of each area's entity; -1 for none.
    codes : the entities' codes.
    parent_level : the smallest larger level whose entities contain those of this one whole, if any.
    parent : (n_entities,) the entity of that level containing each; -1 where there is none.
    """

    level: str
    entity: np.ndarray
    codes: tuple[str, ...]
    parent_level: str | None
    parent: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def sums(self, area: np.ndarray) -> np.ndarray:
        """Records of each entity `(n_entities,)`, by the areas of all records `(n,)`."""
        entity = self.entity[area]
        return np.bincount(entity[entity >= 0], minlength=len(self))


@dataclass(frozen=True, eq=False)
class RequestedTable:
    """A table: answers to a marginal query about some of the records, for all entities of a level.

    counted : (n_cells,) mask of the cells of the records that it counts.
    """

    name: str
    query: MarginalQuery
    counted: np.ndarray
    places: Places

    @property
    def key(self) -> tuple[str, str]:
        """Identifier of a table of a comparison: name and level."""
        return self.name, self.places.level

    @property
    def shape(self) -> tuple[int, int]:
        """Entities and answers of each."""
        return len(self.places), self.query.n_rows

    def positions(self, area: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Where records `(n,)` of some areas and cells are counted: entity times answers plus the
        answer; -1 for records that the table does not count.
        """
        entity = self.places.entity[area].astype(np.int64)
        found = entity * self.query.n_rows + self.query.row_of_cell[cell]
        return np.where((entity >= 0) & self.counted[cell], found, -1)

    def answer(
        self, area: np.ndarray, cell: np.ndarray, weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Sums of weights, by default counts, of records by entity and answer, `shape`, float64."""
        at = self.positions(area, cell)
        inside = at >= 0
        own = None if weight is None else weight[inside]
        n_entities, n_rows = self.shape
        sums = np.bincount(at[inside], own, minlength=n_entities * n_rows)
        return sums.astype(np.float64).reshape(n_entities, n_rows)


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """A table as a method publishes it, and the bounds of the true counts that follow from it.

    value : (n_entities, n_answers) published values; NaN where a value is withheld.
    low, high : bounds of the true counts that follow from the published values and the method's
        public parameters, where it has any; infinite where nothing follows.
    total : (2, n_entities) such bounds of the sum of each entity's answers; None where only those
        of the answers apply.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray | None = None

    @classmethod
    def exactly(cls, value: np.ndarray) -> PublishedTable:
        """A table whose values are said to be the counts."""
        return cls(value, value, value)

    @classmethod
    def within(cls, value: np.ndarray, distance: float) -> PublishedTable:
        """A table whose values are at most some distance from counts, which are not negative."""
        return cls(value, np.maximum(value - distance, 0), value + distance)

    @classmethod
    def without_bounds(cls, value: np.ndarray) -> PublishedTable:
        """A table of values from which no bound follows but that counts are not negative."""
        return cls(value, np.zeros_like(value), np.full_like(value, np.inf))


Tables = Mapping[tuple[str, str], PublishedTable]
"""Published tables by name and level."""


@dataclass(frozen=True, eq=False)
class Population:
    """The people of a comparison, with the facts that methods and attacks need about them.

    tables : the published tables, levels from large to small.
    regions : levels between whose entities households are swapped, from large to small.
    risk : (n_cells,) value of the risk variables.
    agree : (n_cells,) whether two swapped households must have as many of such persons.
    known, learned : (n_cells,) the attributes that an attacker knows in addition to the area, and
        the attribute to be learned; None where the settings name none.
    """

    people: People
    tables: Sequence[RequestedTable]
    regions: Sequence[Places]
    risk: np.ndarray
    agree: np.ndarray
    known: np.ndarray | None = None
    learned: np.ndarray | None = None

    @cached_property
    def smallest(self) -> Places:
        """The level of the tables with the most entities."""
        return max((table.places for table in self.tables), key=len)

    @cached_property
    def truth(self) -> Mapping[tuple[str, str], np.ndarray]:
        """The true answers of every table."""
        return count_people(self.people, self.tables)


def count_people(
    people: People, tables: Sequence[RequestedTable]
) -> dict[tuple[str, str], np.ndarray]:
    """The answers of tables about people, by name and level."""
    return {table.key: table.answer(people.area, people.cell) for table in tables}


def ancestors(small: Places, large: Places) -> np.ndarray | None:
    """The entity of a larger level that has all of each entity of a smaller one `(n,)`; None if
    some entity of the smaller level is in none, or in several.
    """
    inside = small.entity >= 0
    found = np.full(len(small), -1, dtype=np.int64)
    found[small.entity[inside]] = large.entity[inside]
    is_whole = (found[small.entity[inside]] == large.entity[inside]).all()
    return found if is_whole and (found >= 0).all() else None


def siblings(places: Places) -> list[np.ndarray]:
    """The entities of a level with the same parent, group by group; all together where no entity
    has a parent."""
    order = np.argsort(places.parent, kind="stable")
    starts = np.flatnonzero(np.diff(places.parent[order])) + 1
    return [group for group in np.split(order, starts) if len(group)]


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
        placed[level] = own
        for other in larger:
            if (parent := ancestors(own, other)) is not None:
                placed[level] = replace(own, parent_level=other.level, parent=parent)
                break
    return placed
