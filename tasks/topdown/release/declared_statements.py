"""What a declared census states exactly, in words made from its declaration."""

from __future__ import annotations

from collections.abc import Sequence

from ...census.census import Held
from ...census.declarations import (
    LabelOrPosition,
    RelationDeclaration,
    Term,
    Where,
)
from ..settings import TopdownSettings


def declared_statements(settings: TopdownSettings) -> tuple[tuple[str, str], ...]:
    """Name and meaning of everything that a run states without noise."""
    rows = []
    for name in settings.run.universes:
        universe = settings.compiled_census.universes[name]
        rows += [
            (
                f"{name}: {invariant.name}",
                f"{invariant.query} of {name} in every geounit of {invariant.geolevel} is released "
                "without noise",
            )
            for invariant in universe.invariants
        ]
        for bound in universe.bounds:
            limits = [
                f"{words} {factor:,}"
                for words, factor in (("at least", bound.at_least), ("at most", bound.at_most))
                if factor is not None
            ]
            rows.append(
                (
                    f"{name}: {bound.name}",
                    f"in every area, {bound.query} of {name} is {' and '.join(limits)} for each "
                    f"record of {bound.per}, whose number is public",
                )
            )
        rows += [(f"{name}: {held.name}", _held(settings, name, held)) for held in universe.held]
        rows += [
            (f"{name}: {relation.name}", _relation(settings, name, relation))
            for relation in universe.declared.relations
        ]
        rows += zero_statements(settings, name)
    return tuple(rows)


def zero_statements(settings: TopdownSettings, name: str) -> list[tuple[str, str]]:
    """Name and meaning of the structural zeros of a universe."""
    return [
        (
            f"{name}: {zero.name}",
            f"there are no {name} with {levels_in_words(settings, name, zero.where)}",
        )
        for zero in settings.zeros_of(name)
    ]


SIGNS = {"=": "as many as", "<=": "at most as many as", ">=": "at least as many as"}


def _relation(settings: TopdownSettings, name: str, relation: RelationDeclaration) -> str:
    """A linear relation as a clause about numbers of records in every geounit."""
    left, right = (
        " and ".join(_term(settings, name, term) for term in side)
        for side in (relation.left, relation.right)
    )
    together = ", taken together," if len(relation.left) > 1 else ""
    return f"in every geounit, {left}{together} are {SIGNS[relation.sign]} {right or 'none'}"


def _term(settings: TopdownSettings, name: str, term: Term) -> str:
    whose = term.universe or name
    shown = "released " * (term.universe is not None) + whose
    if term.where:
        shown += f" with {levels_in_words(settings, whose, term.where)}"
    return shown if term.times == 1 else f"{term.times} times the {shown}"


def _held(settings: TopdownSettings, name: str, held: Held) -> str:
    """What is held to an earlier release, and what that costs."""
    among = f" with {levels_in_words(settings, name, held.where)}" if held.where else ""
    theirs = f" with {levels_in_words(settings, None, held.of)}" if held.of else ""
    return (
        f"{held.query} of {name}{among} in every geounit is that of {held.universe}{theirs} in the "
        f"earlier release {held.release}, whose own guarantee holds for it; holding to what is "
        "public costs nothing further"
    )


def levels_in_words(settings: TopdownSettings, universe: str | None, where: Where) -> str:
    """The levels of attributes, by their labels where a universe of this census tells them."""
    return " and ".join(
        f"{attribute} {_either([_label(settings, universe, attribute, one) for one in levels])}"
        for attribute, levels in where.items()
    )


def _label(
    settings: TopdownSettings, universe: str | None, attribute: str, level: LabelOrPosition
) -> str:
    if isinstance(level, str) or universe is None:
        return str(level)
    schema = settings.schema_of(universe)
    coarsening = schema.coarsening(attribute)
    return (schema.labels(attribute) if coarsening is None else coarsening.levels)[level]


def _either(words: Sequence[str]) -> str:
    """
    >>> _either(["0-4"]), _either(["a", "b", "c"])
    ('0-4', 'a, b or c')
    """
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
