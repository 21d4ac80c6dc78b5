"""Exact statements of a declared census, in words made from its declaration."""

from __future__ import annotations

from collections.abc import Sequence

from ...census.attribute_declarations import (
    HOUSEHOLDERS,
    PRESENCE,
    AgreeDeclaration,
    CodeRange,
    Where,
)
from ...census.census import Bound, Held
from ...census.declarations import RelationDeclaration, Term
from ...census.exact_answers import AREAS, ExactAnswers, bound_key, exact_answers
from ...census.queries import TOTAL
from ...products.plan import ExactFact
from ..settings import TopdownSettings


def declared_statements(settings: TopdownSettings) -> tuple[tuple[str, ExactFact], ...]:
    """Everything that a run states without noise: a key, by which a sentence of the certificate may
    state it in its own words, and the fact.

    These are the exact outputs (`exact_answers`, and the areas), and the properties said of every
    input that is accepted.
    """
    census, universes = settings.compiled_census, settings.run.universes
    facts = [
        (one.key, ExactFact(f"{one.of}: {one.invariant or one.key}", _exactness_clause(one)))
        for one in exact_answers(census, universes, areas_alone=settings.blocks_only)
    ]
    for name in universes:
        universe = census.universes[name]
        facts += [
            (
                bound_key(name, bound),
                ExactFact(f"{name}: {bound.name}", _bound(settings, name, bound)),
            )
            for bound in universe.bounds
        ]
        said = [(held.name, _constrained_answers(settings, name, held)) for held in universe.held]
        said += [(r.name, _relation(settings, name, r)) for r in universe.declared.relations]
        said += [
            (one.name, _agreement(settings, name, one))
            for one in universe.agreements
            if one.kind != PRESENCE
        ]
        if universe.accompanied is not None:
            one = universe.accompanied
            said.append((one.name, _accompanied_records(settings, name, one)))
        for zero in settings.zeros_of(name):
            levels = levels_in_words(settings, name, zero.where)
            said.append((zero.name, f"there are no {name} with {levels}"))
        facts += [("", ExactFact(f"{name}: {one}", meaning)) for one, meaning in said]
    columns = "with all columns that the table has, such as codes, names and points"
    meaning = f"which areas there are in {census.geography.table}, {columns}, is used as it is"
    return (*facts, (AREAS, ExactFact("areas", meaning)))


def _exactness_clause(answers: ExactAnswers) -> str:
    """That answers are exact, of whom, where, and why, as a clause."""
    if answers.invariant is not None:
        return (
            f"{answers.query} of {answers.universe} in every geounit of {answers.geolevel} is "
            "released without noise"
        )
    what = f"the number of {answers.universe}"
    if answers.query != TOTAL:
        what = f"the numbers of {answers.universe} by {answers.query}"
    return (
        f"{what} in every geounit of {answers.geolevel} leave without noise, exactly as the input "
        f"has them, since {answers.reason} of {answers.of} needs them; nothing protects them"
    )


def _bound(settings: TopdownSettings, name: str, bound: Bound) -> str:
    """A bound as a clause."""
    limits = [
        f"{words} {factor:,}"
        for words, factor in (("at least", bound.at_least), ("at most", bound.at_most))
        if factor is not None
    ]
    among = f" with {levels_in_words(settings, name, bound.where)}" if bound.where else ""
    public = "whose number is public"
    if bound.by is not None:
        public = f"whose numbers by {bound.by} are public"
    return (
        f"in every area, {bound.query} of {name}{among} is {' and '.join(limits)} for each record "
        f"of {bound.per}, {public}"
    )


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


def _constrained_answers(settings: TopdownSettings, name: str, held: Held) -> str:
    """The answers constrained by an earlier release or another universe, and the cost of it."""
    among = f" with {levels_in_words(settings, name, held.where)}" if held.where else ""
    beside = held.universe if held.release is None else None
    theirs = f" with {levels_in_words(settings, beside, held.of)}" if held.of else ""
    if held.release is None:
        return (
            f"{held.query} of {name}{among} in every geounit is that of the released "
            f"{held.universe}{theirs}; holding to what is released costs nothing further"
        )
    return (
        f"{held.query} of {name}{among} in every geounit is that of {held.universe}{theirs} in the "
        f"earlier release {held.release}, whose own guarantee holds for it; holding to what is "
        "public costs nothing further"
    )


def _agreement(settings: TopdownSettings, name: str, one: AgreeDeclaration) -> str:
    """People who agree with released dwellings, or dwellings with people, and the cost of it."""
    own = f"{name} with {levels_in_words(settings, name, one.where)}"
    others = f"released {one.universe}"
    if one.of:
        others += f" with {levels_in_words(settings, one.universe, one.of)}"
    if one.kind == HOUSEHOLDERS:
        by = "" if one.query == TOTAL else f" by {one.query}"
        fact = f"{own} are{by} as many as {others}"
    else:
        sizes = ", ".join(
            f"{least:,} for each of {size}"
            if least == most
            else f"{least:,} to {most:,} for each of {size}"
            for size, (least, most) in one.people.items()
        )
        fact = f"{own} are as many as {others} have room for by {one.size}: {sizes}"
    return (
        f"in every geounit, {fact}; this is made so after the noise, from what is released alone, "
        "and costs nothing further"
    )


def _accompanied_records(settings: TopdownSettings, name: str, one: AgreeDeclaration) -> str:
    """Records that are nowhere without others, and the cost of it."""
    own, others = (levels_in_words(settings, name, where) for where in (one.where, one.of))
    return (
        f"in every area, {name} with {own} are at most {one.most:,} for each with {others}, and so "
        "none without one; this is made so after the noise, from what is released alone, and costs "
        "nothing further"
    )


def levels_in_words(settings: TopdownSettings, universe: str | None, where: Where) -> str:
    """The levels of attributes, by their labels where a universe of this census has them."""
    labels = {
        attribute: [_label(settings, universe, attribute, one) for one in levels]
        for attribute, levels in where.items()
    }
    return " and ".join(f"{name} {_join_alternatives(found)}" for name, found in labels.items())


def _label(
    settings: TopdownSettings, universe: str | None, attribute: str, level: str | int | CodeRange
) -> str:
    if not isinstance(level, int) or universe is None:
        return str(level)
    return settings.schema_of(universe).grouping(attribute).levels[level]


def _join_alternatives(words: Sequence[str]) -> str:
    """
    >>> _join_alternatives(["0-4"]), _join_alternatives(["a", "b", "c"])
    ('0-4', 'a, b or c')
    """
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
