"""The rules on the input of a declared census, made from its declaration."""

from __future__ import annotations

from collections.abc import Sequence

from spineflow.tasks.census.census import Census, Universe
from spineflow.validation.rules import Evidence, Rule


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
    name, declared = universe.name, universe.declared
    table = declared.table
    rules: list[Rule] = []
    came_from = table
    for step in universe.steps:
        column = step.column
        evidence = f"unknown_{column}" + (f"_of_{came_from}" if came_from != table else "")
        rules += [
            _never(
                name,
                came_from,
                column,
                f"blank_{column}",
                f"{column} must be filled in every row",
                f"give every row the {step.key} of its row in {step.table}",
            ),
            _never(
                name,
                came_from,
                column,
                evidence,
                f"{column} must be a {step.key} of the table {step.table}",
                f"add the rows to {step.table}, or correct the column",
            ),
            _never(
                name,
                step.table,
                step.key,
                f"blank_key_of_{step.table}",
                f"{step.key} must be filled in every row",
                "give every row its identifier",
            ),
            _never(
                name,
                step.table,
                step.key,
                f"repeated_key_of_{step.table}",
                f"{step.key} must be different in every row",
                "remove the duplicate rows",
            ),
        ]
        came_from = step.table
    area = declared.area if isinstance(declared.area, str) else ", ".join(declared.area)
    rules.append(
        _never(
            name,
            came_from,
            area,
            "unknown_area",
            f"{area} must be that of an area of the table {census.geography.table}",
            "add the areas, or correct the column",
        )
    )
    if declared.count is not None:
        rules.append(
            _never(
                name,
                table,
                declared.count,
                "unknown_count",
                f"{declared.count} must be a whole number from 0",
                "correct the column",
            )
        )
    rules += [
        _never(
            name,
            table,
            ", ".join(recode.columns),
            f"unknown_{recode.attribute}",
            f"{', '.join(recode.columns)} must have a level of the attribute {recode.attribute}",
            f"correct the column, or declare its codes under census.attributes.{recode.attribute}",
        )
        for recode in universe.recodes.values()
    ]
    rules += [
        _never(
            name,
            table,
            ", ".join(zero.where),
            f"in_{zero.name}",
            f"no record of {name} may be in the structural zero {zero.name}",
            "correct the records, or take the structural zero out",
        )
        for zero in universe.zeros
    ]
    rules += [
        _never(
            name,
            table,
            bound.query,
            f"outside_bound_{number}",
            f"{name} must meet the bound {bound.name} in every area",
            "correct the records, or widen the bound",
        )
        for number, bound in enumerate(universe.bounds)
    ]
    rules += [
        _never(
            name,
            table,
            relation.name,
            f"breaks_{relation.name}",
            f"{name} must meet the relation {relation.name} in every area",
            "correct the records, or take the relation out",
        )
        for relation in universe.relations
    ]
    return rules


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
