"""The records of a declared universe, streamed: counted by area and cell, and checked.

Files are read in batches; only sums stay in memory, and the keys, areas and referred columns of
tables to which others refer. Every condition on a record is evaluated once for each distinct value.

The rules on the input of a declared census, made from its declaration.

Their texts are in `declared_rules.toml`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...validation.rules import Evidence, Rule, RuleFile, Value
from ..tables.columns import GrowingArray, KeyColumn, canonical_keys, is_blank_key
from ..tables.sources import InputFile
from ..tables.value_tallies import ValueTally
from .areas import AreaIndex, Areas, shaped
from .census import Census, Universe
from .counting import RawColumns, RecordCounter, Weights
from .influence import InfluencePath
from .joins import (
    NUMBER,
    ByTable,
    JoinedTable,
    Occupants,
    OwnAreas,
    PlacedBatch,
    Placing,
    load_occupants,
    numbers_of_alike,
    read_coded,
    read_joined,
)
from .queries import Schema
from .recodes import FIRST_REFUSED, UNKNOWN, Recode, whole_number


@dataclass(frozen=True, eq=False)
class AreaLookup:
    """Tables read before the records of a universe: paths to their areas, occupants by name, and
    the recognised columns of the tables on these paths.
    """

    place: Placing
    occupants: Mapping[str, Occupants]
    raw: RawColumns


def occupant_columns(path: InfluencePath) -> tuple[str, ...]:
    """The columns of occupants that are read in addition to their references."""
    columns = dict.fromkeys((*path.columns, *path.conditions))
    return tuple(column for column in columns if column != NUMBER)


def way_columns(universe: Universe, records: Collection[str]) -> tuple[str, ...]:
    """The columns that a universe reads of the tables on the way to its areas, of which a row is
    protected, or a record of a universe.

    `records` are the tables of universes. Other tables, such as that of the areas, describe facts
    shared by several people.
    """
    return tuple(
        f"{path.table}.{column}"
        for path in universe.step_paths
        if path.records is not None or path.table in records
        for column in path.columns
    )


@dataclass(frozen=True, eq=False)
class UniverseTables:
    """The files of the tables that a universe reads, and the evidence for rules on them."""

    universe: Universe
    files: Mapping[str, Sequence[InputFile]]
    evidence: ValueTally

    def read_ways(self, areas: Areas, recognised: Sequence[str] = ()) -> AreaLookup:
        """Read the tables on the path to the area of the records, and those of occupants.

        `recognised` are columns of these tables by which the ledger recognises their rows. Raises
        UnreadableInput.
        """
        universe, declared = self.universe, self.universe.declared
        raw, columns = RawColumns(recognised, len(areas)), declared.area_columns
        place: Placing = OwnAreas(columns, AreaIndex(areas, len(columns)))
        for depth, step in reversed([*enumerate(declared.steps)]):
            joined = self._joined(depth, place)
            prefix = f"{step.table}."
            told = {name: own for name, own in joined.columns.items() if name.startswith(prefix)}
            raw.add(told, joined.area)
            place = ByTable(step.column, joined)
        occupants = {}
        for name, path in universe.occupant_paths.items():
            own = self._shaped(path.table, occupant_columns(path), path.references)
            occupants[name] = load_occupants(
                own, declared.occupants[name], name, path.columns, universe.name, self.evidence
            )
        return AreaLookup(place, occupants, raw)

    def tally_counted(self, ways: AreaLookup, counted: RecordCounter) -> None:
        """Hold the sums of all records to rules: how many refer to one row of the table on the way
        to their areas, and how many have one key that occupants refer to.
        """
        name = self.universe.name
        if isinstance(ways.place, ByTable):
            self._tally_references(0, counted.references, ways.place)
        for entry, occupant in self.universe.declared.occupants.items():
            keys = counted.keys_of_occupants[occupant.key]
            for file, rows in enumerate(ways.occupants[entry].unknown(keys)):
                n = int(rows.sum())
                unknown: dict[Value, int] = {True: n} if n else {False: len(rows)}
                self.evidence.add(name, f"unknown_key_of_{entry}", unknown, file=file)
            is_shared = numbers_of_alike(keys) > occupant.records_per_key
            self.evidence.add_mask(name, f"shared_key_of_{entry}", is_shared)

    def tally_contributions(self) -> None:
        """Add to the evidence whether a person has too many records in a table.

        In the universe's own table, a row counts as many times as the records that it represents.
        Raises UnreadableInput.
        """
        universe, declared, evidence = self.universe, self.universe.declared, self.evidence
        for reach in universe.reaches:
            contribution = universe.contributions.get(reach.table)
            if contribution is None or reach.table not in self.files or reach.beside:
                continue
            is_counted = reach.table == declared.table and declared.count is not None
            texts = (declared.count,) if is_counted and declared.count else ()
            persons, weights = KeyColumn(), GrowingArray(np.int64)
            own = self._shaped(reach.table, texts, (contribution.person,))
            n_rows = np.zeros(len(own), dtype=np.int64)
            blank = f"blank_person_of_{reach.table}"
            for file, batch, columns in read_coded(own, texts, (contribution.person,)):
                person = batch[contribution.person]
                evidence.add_mask(universe.name, blank, is_blank_key(person), file=file)
                persons.add(canonical_keys(person))
                n_rows[file] += len(person)
                for column in columns.values():
                    weights.append(np.maximum(column.lookup(_count, np.int64), 1))
            numbers = numbers_of_alike(persons, weights.array() if is_counted else None)
            is_crowded = numbers > contribution.records_per_person
            crowded = f"crowded_person_of_{reach.table}"
            evidence.add_masks(universe.name, crowded, is_crowded, n_rows)

    def _joined(self, depth: int, place: Placing) -> JoinedTable:
        """The table of a step on the way to the area; `place` is how its rows find theirs."""
        name, evidence = self.universe.name, self.evidence
        step = self.universe.declared.steps[depth]
        wanted = self.universe.step_paths[depth].columns
        referring = np.zeros(len(place), dtype=np.int64)

        def tally(read: PlacedBatch) -> None:
            if isinstance(place, OwnAreas):
                read.add_mask(name, "unknown_area", read.area < 0)
                return
            row, unknown = read.row, f"unknown_{place.column}_of_{step.table}"
            read.add_mask(name, unknown, row < 0)
            np.add.at(referring, row[row >= 0], 1)

        own = self._shaped(step.table, (*wanted, *place.texts), (step.key, *place.keys))
        columns = {f"{step.table}.{column}": column for column in wanted}
        joined = read_joined(own, step.key, columns, place, evidence, tally)
        evidence.files.add(own, joined.n_rows)
        index = joined.index
        for state, mask in (("blank", index.is_blank), ("repeated", index.is_repeated)):
            evidence.add_masks(name, f"{state}_key_of_{step.table}", mask, joined.n_rows)
        if isinstance(place, ByTable):
            self._tally_references(depth + 1, referring, place)
        return joined

    def _tally_references(self, depth: int, referring: np.ndarray, place: ByTable) -> None:
        """Record in the evidence whether too many `(n_rows,)` records, or rows of the previous
        table, refer to rows of the table of a step.
        """
        step = self.universe.declared.steps[depth]
        if step.records_per_row is not None:
            suite, crowded = self.universe.name, f"crowded_row_of_{step.table}"
            is_crowded = referring > step.records_per_row
            self.evidence.add_masks(suite, crowded, is_crowded, place.joined.n_rows)

    def _shaped(
        self, table: str, texts: Sequence[str], keys: Sequence[str]
    ) -> tuple[InputFile, ...]:
        return shaped(self.files[table], texts, keys, self.evidence)


class UniverseCounter(RecordCounter):
    """Counts the records of a declared universe.

    raw : the columns by which the ledger recognises them, if needed.
    keys_of_occupants : by column of the records, the keys by which occupants are found.
    """

    def __init__(
        self,
        universe: Universe,
        schema: Schema,
        ways: AreaLookup,
        n_areas: int,
        recognised: Sequence[str] = (),
    ) -> None:
        super().__init__(ways.place, {universe.name: schema}, universe.recodes, n_areas)
        self._universe, self._occupants = universe, tuple(ways.occupants.values())
        self._zeros = [(zero.name, schema.cells_where(zero.where)) for zero in universe.zeros]
        asked = [column for recode in self.recodes for column in recode.columns]
        asked += [*universe.rows, *recognised]
        own = [column for column in asked if column in universe.own_path.columns]
        counted = (universe.declared.count,) if universe.declared.count else ()
        self.texts = tuple(dict.fromkeys((*own, *ways.place.texts, *counted)))
        self.keys = tuple(dict.fromkeys((*ways.place.keys, *(one.key for one in self._occupants))))
        self.raw = RawColumns(recognised, n_areas)
        self.keys_of_occupants = {one.key: KeyColumn() for one in self._occupants}

    def tally(self, read: PlacedBatch) -> Weights:
        """Hold the references, areas and numbers of a batch to rules."""
        batch, columns, n_rows = read.batch, read.columns, len(read.area)
        universe, name = self._universe, self._universe.name
        if isinstance(self.place, ByTable):
            column, is_blank = self.place.column, is_blank_key(batch[self.place.column])
            read.add_mask(name, f"blank_{column}", is_blank)
            is_unknown = (read.row < 0) & ~is_blank
            read.add_mask(name, f"unknown_{column}", is_unknown)
        for key, keys in self.keys_of_occupants.items():
            keys.add(canonical_keys(batch[key]))
        for one in self._occupants:
            columns |= one.of(batch[one.key])
        is_member = np.ones(n_rows, dtype=bool)
        for column, codes in universe.rows.items():
            is_member &= columns[column].lookup(codes.holds, bool)
        if isinstance(self.place, OwnAreas):
            read.add_mask(name, "unknown_area", (read.area < 0)[is_member])
        count = np.ones(n_rows, dtype=np.int64)
        declared = universe.declared
        if declared.count:
            count = columns[declared.count].lookup(_count, np.int64)
            read.add_mask(name, "unknown_count", (count < 0)[is_member])
            if declared.largest_count is not None:
                is_large = count > declared.largest_count
                read.add_mask(name, "large_count", is_large)
        return Weights(count, is_member)

    def tally_levels(
        self, recode: Recode, level: np.ndarray, weights: Weights, read: PlacedBatch
    ) -> None:
        """Every record must have a level, and none of the codes that are refused, if its row on the
        way to the area is known.
        """
        is_counted = weights.is_member
        on_the_way = tuple(f"{step.table}." for step in self._universe.declared.steps)
        if any(column.startswith(on_the_way) for column in recode.columns):
            is_counted = is_counted & (read.row >= 0)
        found, name = level[is_counted], self._universe.name
        for number in range(len(recode.refused)):
            rule = f"refused_{recode.attribute}_{number}"
            read.add_mask(name, rule, found == FIRST_REFUSED - number)
        read.add_mask(name, f"unknown_{recode.attribute}", found == UNKNOWN)

    def tally_cells(self, cell: np.ndarray, read: PlacedBatch) -> None:
        """Structural zeros must be empty."""
        for zero, mask in self._zeros:
            read.add_mask(self._universe.name, f"record_in_{zero}", mask[cell])


def _count(value: str | None) -> int:
    """Parse a count; -1 for texts that are no whole number."""
    number = whole_number(value)
    return -1 if number is None else number


_FILE = RuleFile.read(Path(__file__).with_name("declared_rules.toml"))


def declared_rules(
    census: Census, universes: Sequence[str], columns: Sequence[str], evidence: Evidence
) -> tuple[Rule, ...]:
    """The rules of the areas and of some universes, as far as there is evidence for them."""
    table = census.geography.table
    rules = [_FILE.one("blank_area", table=table, column=name) for name in columns]
    rules += [
        _FILE.one("taken_area", table=table, column=name, above=above)
        for above, name in zip(columns, columns[1:], strict=False)
    ]
    listed = ", ".join(columns)
    rules.append(_FILE.one("repeated_area", table=table, column=columns[-1], columns=listed))
    for name in universes:
        universe = census.universes[name]
        rules += [*_rules_of_steps(universe), *_rules_of_charges(universe)]
        rules += [*_rules_of_records(census, universe), *_rules_of_areas(universe)]
    return tuple(rule for rule in rules if rule.evidence in evidence.get(rule.suite, {}))


def _of(
    group: str, universe: Universe, column: str, table: str | None = None, **words: Any
) -> tuple[Rule, ...]:
    """Rules of a universe on a column, of its own table or another."""
    table = table or universe.declared.table
    return _FILE.of(group, suite=universe.name, table=table, column=column, **words)


def _rules_of_steps(universe: Universe) -> Iterator[Rule]:
    """References and keys of the tables on the way to the area."""
    came_from = universe.declared.table
    for step in universe.declared.steps:
        of_table = f"_of_{came_from}" if came_from != universe.declared.table else ""
        words: dict[str, Any] = {"key": step.key, "target": step.table, "of_table": of_table}
        yield from _of("reference", universe, step.column, came_from, **words)
        yield from _of("key", universe, step.key, step.table)
        came_from = step.table


def _rules_of_charges(universe: Universe) -> Iterator[Rule]:
    """The numbers of records that the charge of a change rests on; see `sensitivity`."""
    declared = universe.declared
    for step in universe.declared.steps:
        if (most := step.records_per_row) is not None:
            words: dict[str, Any] = {"most": most, "reference": step.column}
            yield from _of("records_per_row", universe, step.key, step.table, **words)
    for entry, occupant in declared.occupants.items():
        most = occupant.records_per_key
        group = "record_per_key" if most == 1 else "records_per_key"
        words = {"most": most, "entry": entry, "occupants": occupant.table}
        yield from _of(group, universe, occupant.key, **words)
    if declared.count is not None and declared.largest_count is not None:
        yield from _of("largest_count", universe, declared.count, most=declared.largest_count)
    for table, contribution in universe.contributions.items():
        most = contribution.records_per_person
        yield from _of("contributions", universe, contribution.person, table, most=most)


def _rules_of_records(census: Census, universe: Universe) -> Iterator[Rule]:
    """A record's area, count and levels, and the impossible cells."""
    declared = universe.declared
    located = declared.steps[-1].table if declared.steps else declared.table
    columns, areas = ", ".join(declared.area_columns), census.geography.table
    yield from _of("area", universe, columns, located, areas=areas)
    if declared.count is not None:
        yield from _of("count", universe, declared.count)
    for entry, occupant in declared.occupants.items():
        words: dict[str, Any] = {"entry": entry, "keyed": declared.table, "key": occupant.key}
        yield from _of("occupant", universe, occupant.column, occupant.table, **words)
    for recode in universe.recodes.values():
        attribute = recode.attribute
        for number, refused in enumerate(recode.refused):
            words = {"words": refused.statement, "told": refused.remedy}
            columns = ", ".join(refused.where)
            yield from _of(
                "refused", universe, columns, attribute=attribute, number=number, **words
            )
        words = {"attribute": attribute}
        group = "level"
        if recode.reading is not None and recode.reading.day is not None:
            group, words["form"] = "age", recode.reading.form
        yield from _of(group, universe, ", ".join(recode.columns), **words)
    for zero in universe.zeros:
        yield from _of("structural_zero", universe, ", ".join(zero.where), zero=zero.name)


def _rules_of_areas(universe: Universe) -> Iterator[Rule]:
    """Bounds and relations, which the records of every area meet together."""
    for number, bound in enumerate(universe.bounds):
        yield from _of("bound", universe, bound.query, number=number, bound=bound.name)
    for relation in universe.relations:
        yield from _of("relation", universe, relation.name)
    for held in universe.held_to_universes:
        yield from _of("held_to", universe, held.name, beside=held.universe)
