"""Whose trips they are: m trips a person, checked, or enforced by drawing which of them stay.

Where more trips than m are dropped, those that stay are a uniformly random choice of m of the
person's trips, made for every person apart. Changing one person's trips then changes the choice for
that person alone, so that tables that differ in one person differ after it in at most m trips, or m
of each: the noise for m covers them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.hierarchy import ranks_within
from ....validation.trips.input_rules import RULES
from ...noise.randomness import RandomSource, random_words
from ...tables.columns import trimmed_texts
from ...tables.findings import RuleTally
from ..workload.neighbors import Contribution
from ..workload.truth import NodeCounts, summed


@dataclass(frozen=True, eq=False)
class PersonTrips:
    """Rows of persons' trips: `person` (n,) numbers from 0, `keys` of leaves, `counts` of trips."""

    person: np.ndarray
    keys: np.ndarray
    counts: np.ndarray

    @property
    def per_person(self) -> np.ndarray:
        """Trips of every person."""
        return np.bincount(self.person, self.counts).astype(np.int64)

    def distinct(self) -> PersonTrips:
        """One row for each leaf of a person, with the trips of all its rows."""
        order = np.lexsort((self.keys, self.person))
        person, keys = self.person[order], self.keys[order]
        is_first = np.ones(person.size, dtype=bool)
        is_first[1:] = (person[1:] != person[:-1]) | (keys[1:] != keys[:-1])
        starts = np.flatnonzero(is_first)
        counts = np.add.reduceat(self.counts[order], starts) if starts.size else self.counts
        return PersonTrips(person[starts], keys[starts], counts)

    def kept(self, most: int, source: RandomSource, *, are_distinct: bool) -> NodeCounts:
        """The leaves of at most `most` trips a person, drawn at random; of distinct ones at most
        one a leaf.
        """
        rows = self.distinct()
        if are_distinct:
            rows = PersonTrips(rows.person, rows.keys, np.ones_like(rows.counts))
        is_over = rows.per_person[rows.person] > most
        person = np.repeat(rows.person[is_over], rows.counts[is_over])
        keys = np.repeat(rows.keys[is_over], rows.counts[is_over])
        order = np.lexsort((random_words(source, person.size), person))
        chosen = keys[order][ranks_within(person[order]) < most]
        return summed(
            np.concatenate([rows.keys[~is_over], chosen]),
            np.concatenate([rows.counts[~is_over], np.ones(chosen.size, dtype=np.int64)]),
        )


@dataclass
class PeopleSoFar:
    """Persons of a table's rows as its batches are read; blank ones are counted as evidence."""

    table: str
    column: str
    _persons: list[pa.Array] = field(default_factory=list)
    _keys: list[np.ndarray] = field(default_factory=list)
    _counts: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        persons: pa.Array,
        usable: np.ndarray,
        keys: np.ndarray,
        counts: np.ndarray,
        evidence: RuleTally,
    ) -> None:
        """Add a batch: the persons of all rows, and keys and counts of the usable ones."""
        texts = trimmed_texts(persons)
        is_blank = texts.is_null().to_numpy(zero_copy_only=False)
        rule = RULES.one("person", table=self.table, column=self.column)
        evidence.add(rule, int(is_blank.sum()))
        is_named = ~is_blank[usable]
        self._persons.append(texts.filter(pa.array(usable & ~is_blank)))
        self._keys.append(keys[is_named])
        self._counts.append(counts[is_named])

    def trips(self) -> PersonTrips:
        """All rows, persons numbered."""
        texts = pa.chunked_array(self._persons, pa.large_string())
        person, _ = pd.factorize(texts.to_pandas())
        return PersonTrips(
            person.astype(np.int64), np.concatenate(self._keys), np.concatenate(self._counts)
        )


def check_contributions(
    trips: PersonTrips,
    table: str,
    column: str,
    contribution: Contribution,
    evidence: RuleTally,
    *,
    drops: bool,
) -> None:
    """Count the persons whose trips are not as the settings say.

    `drops` tells that trips beyond the most, and those beside another in one cell, are dropped.
    """
    most, are_distinct = contribution.trips, contribution.are_distinct
    at_most, at_least, once = RULES.of("contribution", table=table, column=column, most=most)
    rows = trips.distinct()
    if are_distinct and not drops:
        evidence.add(once, int(np.unique(rows.person[rows.counts > 1]).size))
    if are_distinct and drops:
        rows = PersonTrips(rows.person, rows.keys, np.ones_like(rows.counts))
    per_person = rows.per_person
    if not drops:
        evidence.add(at_most, int((per_person > most).sum()))
    if contribution.has_invariant_total:
        evidence.add(at_least, int((per_person < most).sum()))
