"""The rules on the input of a declared census, made from its declaration.

What they say stands in `declared_rules.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...validation.rule_files import RuleFile
from ...validation.rules import Evidence, Rule
from .census import Census, Universe

_FILE = RuleFile.read(Path(__file__).with_suffix(".toml"))


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
    for step in universe.steps:
        of_table = f"_of_{came_from}" if came_from != universe.declared.table else ""
        words: dict[str, Any] = {"key": step.key, "target": step.table, "of_table": of_table}
        yield from _of("reference", universe, step.column, came_from, **words)
        yield from _of("key", universe, step.key, step.table)
        came_from = step.table


def _rules_of_charges(universe: Universe) -> Iterator[Rule]:
    """The numbers of records that the charge of a change rests on; see `sensitivity`."""
    declared = universe.declared
    for step in universe.steps:
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
    """A record's area, count and levels, and the cells that hold nobody."""
    declared = universe.declared
    located = universe.steps[-1].table if universe.steps else declared.table
    areas = census.geography.table
    yield from _of("area", universe, ", ".join(universe.area_columns), located, areas=areas)
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
    for held in universe.held_beside:
        yield from _of("held_to", universe, held.name, beside=held.universe)
