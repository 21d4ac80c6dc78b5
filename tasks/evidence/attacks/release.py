"""A release as an attacker has it, and the truth that grades an attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from ..ingest import Draw, Places, Population, RequestedTable, Tables
from ..methods.publish import generator_of
from ..settings import Comparison, Method
from .reconstruction import UNBOUNDED, TableSystem, system_of_tables

Row = tuple[str, str, str, float] | tuple[str, str, str, float, float, float]
"""Level, measure, group, value, and bounds of the value where it is a share that was measured."""


class Rate(NamedTuple):
    """A measured share with its Clopper-Pearson interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, alpha: float = 0.05) -> Rate:
    """The share of successes, and bounds that each fail with chance alpha / 2 at most.

    Without trials the share is NaN and the interval everything.
    """
    if trials == 0:
        return Rate(float("nan"), 0.0, 1.0)
    low = beta.ppf(alpha / 2, successes, trials - successes + 1) if successes else 0.0
    failures = trials - successes
    high = beta.isf(alpha / 2, successes + 1, failures) if failures else 1.0
    return Rate(successes / trials, float(low), float(high))


def figures(
    level: str, measure: str, group: str, value: Rate | float, baseline: Rate | float | None = None
) -> Iterator[Row]:
    """A figure of an attack, and the baseline: that of a guesser without the release."""
    for name, figure in ((measure, value), (f"baseline of {measure}", baseline)):
        if isinstance(figure, Rate):
            yield level, name, group, *figure
        elif figure is not None:
            yield level, name, group, figure


SIZES: Sequence[tuple[str, int, int]] = (
    ("1-9 persons", 1, 9),
    ("10-49 persons", 10, 49),
    ("50-249 persons", 50, 249),
    ("250 persons and over", 250, np.iinfo(np.int64).max),
)
"""Classes of areas by their true number of persons: label, least and greatest."""


@dataclass(frozen=True, eq=False)
class Release:
    """An attacker's view of a release, and the truth that grades the attack.

    published, method, draw : the tables, and the method that published them.
    population : the truth, for grading alone; the requested tables are in it.
    part : number of this part of the attacked areas, from 0.
    of_others : tables that the method would publish, under another seed, of other people in these
        areas.

    Cells that no table distinguishes are one kind of people: further attributes are in no release,
    so that an attack on these tables cannot be right or wrong about them.
    """

    comparison: Comparison
    draw: Draw
    method: Method
    published: Tables
    population: Population
    of_others: Callable[[Population], Tables]
    part: tuple[int, int] = (0, 1)

    @property
    def smallest(self) -> Places:
        """The level with the most entities, whose areas are attacked."""
        return self.population.smallest

    @cached_property
    def tables(self) -> list[RequestedTable]:
        """The tables of that level."""
        return [own for own in self.population.tables if own.places.level == self.smallest.level]

    @cached_property
    def entities(self) -> np.ndarray:
        """The attacked entities of that level, ascending: the same for every release."""
        chosen, wanted = np.arange(len(self.smallest)), self.comparison.blocks
        if wanted is not None and wanted < len(chosen):
            # Most areas of a census are empty, and an attack on one shows nothing.
            chosen = np.flatnonzero(self.smallest.sums(self.population.people.area))
            draws = generator_of(self.comparison.seed, "blocks")
            if wanted < len(chosen):
                chosen = np.sort(draws.choice(chosen, size=wanted, replace=False))
        number, of = self.part
        return np.array_split(chosen, of)[number]

    @cached_property
    def kind_of_cell(self) -> np.ndarray:
        """(n_cells,) the kind of each cell, numbered from 0."""
        return self._kinds[1]

    def by_kind(self, of_cell: np.ndarray) -> np.ndarray:
        """Values of cells `(n_cells,)` by kind: those of the first cell of each."""
        return of_cell[self._kinds[0]]

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """The first cell of every kind, and the kind of every cell."""
        codes = np.stack([_codes(own) for own in self.tables])
        _, first, kind = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        return first, kind.ravel()

    @cached_property
    def system(self) -> TableSystem:
        """The rows of all tables of an entity, table by table, over kinds of people."""
        return system_of_tables([self.by_kind(_codes(own)) for own in self.tables])

    @cached_property
    def bounded_system(self) -> TableSystem:
        """The rows of `system`, and below them the sum of each table of whose sum more is known."""
        codes = [self.by_kind(_codes(own)) for own in self.tables]
        sums = [
            np.minimum(code, 0)
            for code, own in zip(codes, self.tables, strict=True)
            if self.published[own.key].total is not None
        ]
        return system_of_tables([*codes, *sums])

    def values(self, side: str = "value") -> np.ndarray:
        """Published values, or their bounds `low` or `high`, of the attacked entities
        `(n, rows)`, in the order of the system's rows.
        """
        return self._rows({key: getattr(own, side) for key, own in self.published.items()})

    def true_values(self) -> np.ndarray:
        """True values of the same, which grade."""
        return self._rows(self.population.truth)

    def _rows(self, answers: Mapping[tuple[str, str], np.ndarray]) -> np.ndarray:
        kept = [(own.key, int(_codes(own).max()) + 1) for own in self.tables]
        return np.concatenate([answers[key][self.entities, :n] for key, n in kept], axis=1)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers between which the release says that each row of `bounded_system` is; where
        it gives no bound of a figure, its value, which is then the likeliest count.
        """
        value, low, high = (self.values(side) for side in ("value", "low", "high"))
        has_none = np.isinf(high) & ~np.isnan(value)
        low, high = np.where(has_none, value, low), np.where(has_none, value, high)
        published = (self.published[own.key].total for own in self.tables)
        totals = [own[:, self.entities, None] for own in published if own is not None]
        low, high = np.concatenate([np.stack([low, high]), *totals], axis=2)
        upper = np.where(np.isinf(high), UNBOUNDED, np.floor(high + 1e-6))
        return np.ceil(low - 1e-6).astype(np.int64), upper.astype(np.int64)

    @cached_property
    def true(self) -> tuple[np.ndarray, np.ndarray]:
        """People in attacked entities: positions among these, and kinds, `(k,)` each."""
        people = self.population.people
        place = np.full(len(self.smallest), -1)
        place[self.entities] = np.arange(len(self.entities))
        entity = self.smallest.entity[people.area]
        at = np.where(entity >= 0, place[entity], -1)
        return at[at >= 0], self.kind_of_cell[people.cell[at >= 0]]


def _codes(table: RequestedTable) -> np.ndarray:
    """(n_cells,) the answer of a table that counts each cell; -1 for none."""
    return np.where(table.counted, table.query.row_of_cell, -1)
