"""The rules on the input of a declared census, made from its declaration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...validation.rules import Evidence, Rule
from .census import Census, Universe


def declared_rules(
    census: Census, universes: Sequence[str], columns: Sequence[str], evidence: Evidence
) -> tuple[Rule, ...]:
    """The rules of the areas and of some universes, as far as there is evidence for them."""
    table = census.geography.table
    rules = [
        _never(
            table,
            table,
            name,
            f"blank_{name}",
            f"{name} must be filled in every row",
            "give every area its code",
        )
        for name in columns
    ]
    rules += [
        _never(
            table,
            table,
            name,
            f"taken_{name}",
            f"where {name} is blank, no {name} of the same {above} may have its code",
            f"give these areas a {name}, or the other {name} another code",
        )
        for above, name in zip(columns, columns[1:], strict=False)
    ]
    rules.append(
        _never(
            table,
            table,
            columns[-1],
            "repeated_area",
            f"every area ({', '.join(columns)}) must occur once",
            "remove the duplicate areas",
        )
    )
    for name in universes:
        rules += _universe_rules(census, census.universes[name])
    return tuple(rule for rule in rules if rule.evidence in evidence.get(rule.suite, {}))


def _universe_rules(census: Census, universe: Universe) -> list[Rule]:
    """The rules of a universe: on the way to the area, on single records, and on areas."""
    return [
        *_rules_of_steps(universe),
        *_rules_of_charges(universe),
        *_rules_of_records(census, universe),
        *_rules_of_areas(universe),
    ]


def _rules_of_steps(universe: Universe) -> Iterator[Rule]:
    """References and keys of the tables on the way to the area."""
    came_from = universe.declared.table
    for step in universe.steps:
        column, key, table = step.column, step.key, step.table
        of_table = f"_of_{came_from}" if came_from != universe.declared.table else ""
        yield _never(
            universe.name,
            came_from,
            column,
            f"blank_{column}",
            f"{column} must be filled in every row",
            f"give every row the {key} of its row in {table}; records that have none, such as "
            "persons in institutions, need a column with their area, or a universe of their own",
        )
        yield _never(
            universe.name,
            came_from,
            column,
            f"unknown_{column}{of_table}",
            f"{column} must be a {key} of the table {table}",
            f"add the rows to {table}, or correct the column",
        )
        yield _never(
            universe.name,
            table,
            key,
            f"blank_key_of_{table}",
            f"{key} must be filled in every row",
            "give every row its identifier",
        )
        yield _never(
            universe.name,
            table,
            key,
            f"repeated_key_of_{table}",
            f"{key} must be different in every row",
            "remove the duplicate rows",
        )
        came_from = table


def _rules_of_charges(universe: Universe) -> Iterator[Rule]:
    """The numbers of records that the charge of a change rests on; see `sensitivity`."""
    name, declared = universe.name, universe.declared
    for step in universe.steps:
        if step.records_per_row is not None:
            yield _never(
                name,
                step.table,
                step.key,
                f"crowded_row_of_{step.table}",
                f"at most {step.records_per_row} may refer to one row of {step.table} by "
                f"{step.column}",
                f"correct the references, or declare a larger records_per_row of {name}",
            )
    for entry, occupant in declared.occupants.items():
        most = occupant.records_per_key
        yield _never(
            name,
            declared.table,
            occupant.key,
            f"shared_key_of_{entry}",
            f"{occupant.key} must be different in every row, since rows of {occupant.table} "
            f"({entry}) tell the records of {name} by it"
            if most == 1
            else f"at most {most} rows may have one {occupant.key}",
            f"correct the rows, or declare records_per_key under {name}.occupants.{entry}, which "
            "raises the charge",
        )
    if declared.count is not None and declared.largest_count is not None:
        yield _never(
            name,
            declared.table,
            declared.count,
            "large_count",
            f"{declared.count} must be at most {declared.largest_count}",
            f"give more rows, or declare a larger largest_count of {name}",
        )
    for table, told in universe.contributions.items():
        yield _never(
            name,
            table,
            told.person,
            f"blank_person_of_{table}",
            f"{told.person} must be filled in every row",
            "give every row its person",
        )
        yield _never(
            name,
            table,
            told.person,
            f"crowded_person_of_{table}",
            f"a person may have at most {told.records_per_person} records",
            f"leave out the rest, or declare a larger contributions.{table}.records_per_person",
        )


def _rules_of_records(census: Census, universe: Universe) -> Iterator[Rule]:
    """A record's area, count and levels, and the cells that hold nobody."""
    name, declared = universe.name, universe.declared
    area = ", ".join(universe.area_columns)
    yield _never(
        name,
        universe.steps[-1].table if universe.steps else declared.table,
        area,
        "unknown_area",
        f"{area} must be that of an area of the table {census.geography.table}",
        "add the areas, or correct the column",
    )
    if declared.count is not None:
        yield _never(
            name,
            declared.table,
            declared.count,
            "unknown_count",
            f"{declared.count} must be a whole number from 0",
            "correct the column",
        )
    for entry, occupant in declared.occupants.items():
        yield _never(
            name,
            occupant.table,
            occupant.column,
            f"repeated_{entry}",
            f"of the rows that are {entry} of one row of {declared.table} there must be only one",
            f"correct the rows, or declare which are meant under {name}.occupants.{entry}.where",
        )
    for recode in universe.recodes.values():
        columns = ", ".join(recode.columns)
        for number, refused in enumerate(recode.refused):
            yield _never(
                name,
                declared.table,
                ", ".join(refused.where),
                f"refused_{recode.attribute}_{number}",
                refused.statement,
                refused.remedy,
            )
        yield _never(
            name,
            declared.table,
            columns,
            f"unknown_{recode.attribute}",
            f"{columns} must have a level of the attribute {recode.attribute}",
            f"correct the column, or declare its codes under census.attributes.{recode.attribute}",
        )
    for zero in universe.zeros:
        yield _never(
            name,
            declared.table,
            ", ".join(zero.where),
            f"record_in_{zero.name}",
            f"no record of {name} may be in the structural zero {zero.name}",
            "correct the records, or take the structural zero out",
        )


def _rules_of_areas(universe: Universe) -> Iterator[Rule]:
    """Bounds and relations, which the records of every area meet together."""
    name, table = universe.name, universe.declared.table
    for number, bound in enumerate(universe.bounds):
        yield _never(
            name,
            table,
            bound.query,
            f"area_outside_bound_{number}",
            f"{name} must meet the bound {bound.name} in every area",
            "correct the records, or widen the bound",
        )
    for relation in universe.relations:
        yield _never(
            name,
            table,
            relation.name,
            f"breaks_{relation.name}",
            f"{name} must meet the relation {relation.name} in every area",
            "correct the records, or take the relation out",
        )
    for held in universe.held_beside:
        yield _never(
            name,
            table,
            held.name,
            f"breaks_{held.name}",
            f"{name} must have the answers of {held.universe} that {held.name} holds them to in "
            "every area",
            "correct the records of either, or take held_to out",
        )


def _never(suite: str, table: str, column: str, evidence: str, statement: str, remedy: str) -> Rule:
    """A rule that the yes/no evidence column is False in every row."""
    return Rule(
        name=f"no_{evidence}",
        suite=suite,
        table=table,
        column=column,
        evidence=evidence,
        statement=statement,
        remedy=remedy,
        allowed=(False,),
    )
