"""How often each error comes in a subspine of a spine: what the figures of all of it are made of.

The tallies of a subspine are small, and those of several are added up in their order, so that it
does not matter who made them: one process, or the tasks of a large run, which keep them in files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from ....census.census import Census
from ....census.queries import incidence
from ....census.schema import Schema
from .errors import (
    ALL_ANSWERS,
    ALL_SIZES,
    LargestGroups,
    Pairs,
    Tally,
    criterion_of,
    figures_of,
    size_class_names,
    size_classes,
)
from .levels import EntityLevel, own_level
from .quantities import Quantity, answer_matrix, redistricting_groups
from .theory import Prediction

Record = TypeVar("Record")


@dataclass(frozen=True, eq=False)
class Compared:
    """Truth and release of a universe, block by block in the order of a spine or of a subspine."""

    schema: Schema
    truth: sparse.csr_array
    released: sparse.csr_array
    levels: tuple[EntityLevel, ...]
    type_is_possible: np.ndarray
    """(n_blocks, n_types): the types of cells that a block can have; that of a housing unit."""
    type_of_cell: np.ndarray
    """(n_cells,)"""
    prediction: Prediction

    def answers(self, matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """True and released answers (n_blocks, n_answers); `matrix` is that of the answers."""
        return (self.truth @ matrix).toarray(), (self.released @ matrix).toarray()


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of a quantity at one level, by answer and size class."""

    entities: np.ndarray
    """(n_classes,) entities of each class that have a pair."""
    tallies: Mapping[tuple[int, int], tuple[Tally, ...]]
    """By answer and class, one of each subspine that has any."""

    @classmethod
    def added(cls, parts: Sequence[Errors]) -> Errors:
        """Those of some subspines, at least one."""
        tallies: dict[tuple[int, int], tuple[Tally, ...]] = {}
        for part in parts:
            for key, own in part.tallies.items():
                tallies[key] = (*tallies.get(key, ()), *own)
        return cls(np.sum([part.entities for part in parts], axis=0), tallies)

    def rows(self, head: Mapping[str, Any], quantity: Quantity) -> Iterator[dict[str, Any]]:
        """The rows of `AccuracyFigures.errors`, each of which begins with `head`."""
        for number, name in ((None, ALL_SIZES), *enumerate(size_class_names())):
            entities = int(self.entities.sum() if number is None else self.entities[number])
            if entities:
                chosen = [own for (_, c), own in self.tallies.items() if number in (None, c)]
                row = {"answer": ALL_ANSWERS, "size_class": name, "entities": entities}
                yield {**head, **row, **figures_of(list(chain(*chosen)))}
        if len(quantity.answers) == 1:
            return
        for column, answer in enumerate(quantity.answers):
            chosen = [own for (a, _), own in self.tallies.items() if a == column]
            if chosen:
                figures = figures_of(list(chain(*chosen)))
                row = {
                    "answer": answer.label,
                    "size_class": ALL_SIZES,
                    "entities": figures["pairs"],
                }
                yield {**head, **row, **figures}


@dataclass(frozen=True, eq=False)
class Tallies:
    """What is told of a subspine."""

    levels: Mapping[str, frozenset[str]]
    """Its levels, and the geolevels whose geounits are the entities of each."""
    errors: Mapping[tuple[str, str], Errors]
    """By quantity and level; those of levels without entities are left out."""
    groups: Mapping[tuple[str, str], LargestGroups]
    """By population and level; those of levels without entities are left out."""

    @classmethod
    def of(cls, compared: Compared, quantities: Sequence[Quantity], census: Census) -> Tallies:
        """Compare a subspine."""
        errors = {
            (quantity.name, level): own
            for quantity in quantities
            for level, own in _errors(compared, quantity)
        }
        levels = {level.name: level.geolevels for level in compared.levels}
        return cls(levels, errors, _largest_groups(compared, census))

    def facts(self) -> dict[str, Any]:
        """The tallies in values and arrays that `keep` writes; see `from_facts`."""
        return {
            "levels": {name: sorted(geolevels) for name, geolevels in self.levels.items()},
            "errors": [
                [*key, own.entities, [[*k, asdict(t)] for k, (t,) in own.tallies.items()]]
                for key, own in self.errors.items()
            ],
            "groups": [[*key, asdict(own)] for key, own in self.groups.items()],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Tallies:
        """The tallies of such `facts`."""
        errors = {}
        for quantity, level, entities, tallies in facts["errors"]:
            by_answer = {(a, c): (_tally(own),) for a, c, own in tallies}
            errors[quantity, level] = Errors(np.array(entities), by_answer)
        groups = {
            (population, level): LargestGroups(
                np.array(own["points"], dtype=float), np.array(own["is_within"], dtype=bool)
            )
            for population, level, own in facts["groups"]
        }
        levels = {name: frozenset(geolevels) for name, geolevels in facts["levels"].items()}
        return cls(levels, errors, groups)


def error_rows(
    parts: Sequence[Tallies], universe: str, quantities: Sequence[Quantity], own: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The rows of `AccuracyFigures.errors` of a universe, from the tallies of all its subspines.

    `own` are the geolevels that may have levels of their own; see `own_geolevels`.
    """
    for quantity in quantities:
        of_parts = [part.errors for part in parts]
        for head, found in _by_level(parts, of_parts, quantity.name, own):
            named = {"universe": universe, "quantity": quantity.name}
            yield from Errors.added(found).rows(named | head, quantity)


def criterion_rows(parts: Sequence[Tallies], own: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of `AccuracyFigures.criterion`, of the subspines of a universe put together."""
    for population in dict.fromkeys(name for part in parts for name, _ in part.groups):
        of_parts = [part.groups for part in parts]
        for head, found in _by_level(parts, of_parts, population, own):
            yield {"population": population} | head | criterion_of(found)


def _by_level(
    parts: Sequence[Tallies],
    of_parts: Sequence[Mapping[tuple[str, str], Record]],
    name: str,
    own: Sequence[str],
) -> Iterator[tuple[dict[str, Any], list[Record]]]:
    """Each level of all subspines that has entities, with the records that some have under a
    name; `of_parts` are those of each subspine."""
    for level, on_spine in _levels_of_all(parts, own).items():
        keys = [(name, _level_in(part, level, own)) for part in parts]
        found = [
            of_part[key] for of_part, key in zip(of_parts, keys, strict=True) if key in of_part
        ]
        if found:
            yield {"level": level, "on_spine": on_spine}, found


def _levels_of_all(parts: Sequence[Tallies], own: Sequence[str]) -> dict[str, bool]:
    """The levels of all subspines, and whether their entities are geounits: in every subspine those
    of the same geolevel. Geolevels that are no level's have one of their own."""
    own_levels = {own_level(geolevel): geolevel for geolevel in own}
    shared = {
        name: frozenset.intersection(*(part.levels[name] for part in parts))
        for name in parts[0].levels
        if name not in own_levels
    }
    matched = frozenset(chain(*shared.values()))
    levels = {name: bool(geolevels) for name, geolevels in shared.items()}
    return levels | {name: True for name, geolevel in own_levels.items() if geolevel not in matched}


def _level_in(part: Tallies, level: str, own: Sequence[str]) -> str:
    """The level of a subspine that has the entities of a level of all: the same, or where a
    geolevel's geounits are the entities of another there, that one."""
    if level in part.levels:
        return level
    geolevel = next(name for name in own if own_level(name) == level)
    return next(name for name, geolevels in part.levels.items() if geolevel in geolevels)


def _errors(compared: Compared, quantity: Quantity) -> Iterator[tuple[str, Errors]]:
    """The errors of a quantity at every level that has entities, by level."""
    matrix = answer_matrix(quantity.answers, compared.schema)
    truth, released = compared.answers(matrix)
    size = np.asarray(compared.truth.sum(axis=1)).reshape(-1, 1)
    possible = _possible(compared, matrix).astype(np.int64)
    for level in compared.levels:
        if not level.n_entities:
            continue
        entities = np.zeros(len(size_class_names()), dtype=np.int64)
        tallies = {}
        is_pair = level.sums(possible) > 0
        pairs = Pairs(
            level.sums(truth),
            level.sums(released),
            compared.prediction.variances(level, quantity.answers),
        )
        classes = size_classes(level.sums(size)[:, 0])
        for number in np.unique(classes).tolist():
            rows = np.flatnonzero(classes == number)
            entities[number] = int(is_pair[rows].any(axis=1).sum())
            for column in range(len(quantity.answers)):
                chosen = rows[is_pair[rows, column]], column
                if len(chosen[0]):
                    tallies[column, number] = (Tally.of(pairs.where(chosen)),)
        yield level.name, Errors(entities, tallies)


def _possible(compared: Compared, matrix: sparse.csr_array) -> np.ndarray:
    """(n_blocks, n_answers): the answer of the block can be other than 0; `matrix` is that of the
    answers."""
    counted = incidence(compared.type_of_cell, compared.type_is_possible.shape[1]) @ matrix
    return (compared.type_is_possible.astype(np.int64) @ (counted.toarray() > 0)) > 0


def _largest_groups(compared: Compared, census: Census) -> dict[tuple[str, str], LargestGroups]:
    """The largest groups of every population at every level that has entities."""
    found = {}
    for population, groups in redistricting_groups(compared.schema, census).items():
        truth, released = compared.answers(answer_matrix(groups, compared.schema))
        for level in (level for level in compared.levels if level.n_entities):
            found[population, level.name] = LargestGroups.of(
                level.sums(truth), level.sums(released)
            )
    return found


def _tally(facts: Mapping[str, Any]) -> Tally:
    arrays = {name: np.array(facts[name], dtype=np.int64) for name in ("errors", "counts")}
    return Tally(**{**facts, **arrays, "beyond_percent": tuple(facts["beyond_percent"])})
