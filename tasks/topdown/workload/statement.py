"""The guarantee and the exact statements of a topdown run, in words.

Sentences of a declared census replace the ones that are made from its declaration: of the protected
tables, with the cost of a change in each, and of everything that is stated without noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...census.attribute_declarations import (
    HOUSEHOLDERS,
    PRESENCE,
    AgreeDeclaration,
    CodeRange,
    Where,
)
from ...census.census import Bound, Held, Universe
from ...census.declarations import RelationDeclaration, SentenceDeclaration, Term
from ...census.exact_answers import AREAS, ExactAnswers, bound_key, exact_answers
from ...census.influence import Norms, Reach
from ...census.queries import TOTAL
from ...ledger.accounting import compose
from ...products.plan import ExactFact, Statement
from ...runs.names import join_words
from ..settings import TopdownSettings
from .costs import guarantee_of


def statement_of(settings: TopdownSettings) -> Statement:
    """The guarantee for one record of each universe, where the declared facts stay the same."""
    universes = settings.run.universes
    budgets = [settings.budget_of(universe) for universe in universes]
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    together = ""
    if len(universes) > 1:
        both = compose([guarantee_of(budget) for budget in budgets])
        together = (
            f"The losses of {' and '.join(universes)} add up: whoever counts both as one person's "
            f"data has rho {both.parameter} of bounded zCDP (about {float(both.parameter):.4g})."
        )
    person = per_person(settings)
    if person is not None:
        is_one = all(budget.charge == Norms() for budget in budgets)
        counted = "one record of each" if is_one else "less"
        together += (
            f" One person's change of all records that follow from it has rho {person} (about "
            f"{float(person):.4g}) over {' and '.join(universes)}; the ledger counts {counted}."
        )
    unprotected = (own for universe in universes for own in _unprotected(settings, universe))
    return Statement(
        None,
        tuple(_protected(settings, universe) for universe in universes),
        tuple(_change(settings, universe) for universe in universes),
        (),
        together,
        unprotected=tuple(unprotected),
    )


def exact_of(settings: TopdownSettings) -> tuple[ExactFact, ...]:
    """The declared facts of the universes that ran, and all other exact outputs.

    Sentences of the census state facts in its own words; every other fact is stated in words made
    from the declaration.
    """
    sentences = list(sentences_about(settings, "exact"))
    stated = {key for sentence in sentences for key in sentence.tells}
    exact = [ExactFact(sentence.name, text_of(settings, sentence)) for sentence in sentences]
    exact += [fact for key, fact in declared_statements(settings) if key not in stated]
    return tuple(exact)


def sentences_about(
    settings: TopdownSettings, about: str, universe: str | None = None
) -> Iterator[SentenceDeclaration]:
    """The applicable declared sentences on a topic, for one universe or for all that ran."""
    for sentence in settings.compiled_census.declared.certificate:
        name = sentence.universe
        if sentence.about != about or name not in settings.run.universes:
            continue
        there = {*settings.schema_of(name).attributes, *_held_invariants(settings, name)}
        holds = there.issuperset(sentence.holds) and there.isdisjoint(sentence.lacks)
        if holds and universe in (None, name):
            yield sentence


def _held_invariants(settings: TopdownSettings, universe: str) -> Iterator[str]:
    """Names of the invariants of the release."""
    census, geolevels = settings.compiled_census, settings.budget[universe].geolevels
    for invariant in census.universes[universe].invariants:
        is_last = invariant.geolevel == census.geolevels[-1]
        stands = invariant.above is None or invariant.geolevel in geolevels
        if is_last or (stands and not settings.blocks_only):
            yield invariant.name


def text_of(settings: TopdownSettings, sentence: SentenceDeclaration) -> str:
    """The words of a sentence, with the values of its settings inserted."""
    name = sentence.universe
    bounds = settings.compiled_census.universes[name].bounds
    most = max((bound.at_most or 0 for bound in bounds), default=0)
    attributes = ", ".join(settings.schema_of(name).attributes)
    return sentence.text.replace("{attributes}", attributes).replace("{at_most}", f"{most:,}")


def _protected(settings: TopdownSettings, universe: str) -> str:
    for sentence in sentences_about(settings, "protected", universe):
        return text_of(settings, sentence)
    attributes = ", ".join(settings.schema_of(universe).attributes)
    return f"Protected is every record of {universe}: {attributes}, and its area."


def _unprotected(settings: TopdownSettings, universe: str) -> Iterator[str]:
    """A sentence on unprotected attributes of a universe's records, if any."""
    tables = [
        reach.table
        for reach in settings.compiled_census.universes[universe].reaches
        if reach.records is None and reach.table != settings.compiled_census.geography.table
    ]
    if tables:
        names = " and ".join(tables)
        yield (
            f"Values that a record of {universe} takes from records of {names} are not protected: "
            "they are the same in both tables."
        )


def _change(settings: TopdownSettings, universe: str) -> str:
    compared = (
        f"The guarantee compares two tables that differ in one record of {universe}, and that "
        "agree in the facts which are public by declaration."
    )
    for sentence in sentences_about(settings, "change", universe):
        compared = text_of(settings, sentence)
    return f"{compared} {protected_tables(settings, universe)}"


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
            said.append((zero.name, f"there are no {name}{_among(settings, name, zero.where)}"))
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
    among = _among(settings, name, bound.where)
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
    shown += _among(settings, whose, term.where)
    return shown if term.times == 1 else f"{term.times} times the {shown}"


def _constrained_answers(settings: TopdownSettings, name: str, held: Held) -> str:
    """The answers constrained by an earlier release or another universe, and the cost of it."""
    among = _among(settings, name, held.where)
    theirs = _among(settings, held.universe if held.release is None else None, held.of)
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
    own = f"{name}{_among(settings, name, one.where)}"
    others = f"released {one.universe}{_among(settings, one.universe, one.of)}"
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
    own, others = (_among(settings, name, where) for where in (one.where, one.of))
    return (
        f"in every area, {name}{own} are at most {one.most:,} for each{others}, and so "
        "none without one; this is made so after the noise, from what is released alone, and costs "
        "nothing further"
    )


def _among(settings: TopdownSettings, universe: str | None, where: Where) -> str:
    """The condition on records as an addition to their name, with labels of levels where a universe
    of this census has them; empty for all records."""
    labels = {
        attribute: [_label(settings, universe, attribute, one) for one in levels]
        for attribute, levels in where.items()
    }
    words = " and ".join(f"{name} {join_words(found, 'or')}" for name, found in labels.items())
    return f" with {words}" if words else ""


def _label(
    settings: TopdownSettings, universe: str | None, attribute: str, level: str | int | CodeRange
) -> str:
    if not isinstance(level, int) or universe is None:
        return str(level)
    return settings.schema_of(universe).grouping(attribute).levels[level]


def protected_tables(settings: TopdownSettings, name: str) -> str:
    """For every table that a universe depends on, the effect and cost of one changed record there,
    or the part of the universe that stays the same; as sentences.
    """
    universe = settings.compiled_census.universes[name]
    is_pure = settings.budget_of(name).is_pure
    sentences = [
        _sentence(universe, reach, is_pure)
        for reach in universe.reaches
        # Areas are public, and not records of persons.
        if reach.table != settings.compiled_census.geography.table
    ]
    declared = universe.declared
    if declared.count is not None and declared.largest_count is None:
        sentences.append(
            f"A row of {declared.table} stands for as many records as its column {declared.count} "
            "says: protected is one of these records, not the row."
        )
    return " ".join(sentences)


def per_person(settings: TopdownSettings) -> Fraction | None:
    """Rho of bounded zCDP of all records that one person's change may change, over all universes
    that ran; None where the ledger counts all of it.
    """
    guarantees = [guarantee_of(settings.budget_of(name)) for name in settings.run.universes]
    stated = sum((guarantee.stated_rho for guarantee in guarantees), Fraction(0))
    return None if stated == compose(guarantees).parameter else stated


def _sentence(universe: Universe, reach: Reach, is_pure: bool) -> str:
    """The effect of one changed record of a table on a universe, or why it is not stated."""
    name, table = universe.name, reach.table
    if reach.records is None:
        taken = ", ".join(_taken(universe, table))
        return (
            f"Records of {name} take {taken} from {table}: in this, the records of {table} are the "
            "same in both, and a change of one of them is not protected by this guarantee."
        )
    contribution = universe.contributions.get(table)
    whose = (
        ""
        if contribution is None
        else f"or all {contribution.records_per_person} of a person there, "
    )
    number = "one record" if reach.records == 1 else f"at most {reach.records:,} records"
    sentence = f"One changed record of {table} {whose}changes {number} of {name}"
    if reach.beside:
        tables = " and ".join((table, *reach.beside))
        sentence = f"One person's records in {tables} together change {number} of {name}"
    if reach.records == 1:
        return f"{sentence}."
    if reach.opposite:
        sentence += ", as many one way as the other"
    factor = reach.norms.epsilon_factor if is_pure else reach.norms.rho_factor
    loss = "epsilon" if is_pure else "rho"
    sentence += f", and has {_times(factor)} as large {'an' if is_pure else 'a'} {loss} from them"
    if not reach.is_charged:
        most = max((r.records or 0 for r in universe.reaches if r.is_charged), default=1)
        counted = "one record" if most <= 1 else f"at most {most:,} records"
        sentence += (
            f"; the ledger counts {counted} of {name}, and the loss of one person that stands "
            "below counts all of them"
        )
    return f"{sentence}."


def _taken(universe: Universe, table: str) -> Iterator[str]:
    """Columns that a universe's records take from a table on the way, and from those behind it."""
    steps = universe.declared.steps
    first = next(number for number, step in enumerate(steps) if step.table == table)
    behind = tuple(f"{step.table}." for step in steps[first:])
    asked = [column for recode in universe.recodes.values() for column in recode.columns]
    yield "their area"
    for column in dict.fromkeys([*asked, *universe.rows]):
        if column.startswith(behind):
            yield column


def _times(factor: Fraction) -> str:
    """A factor in words.

    >>> _times(Fraction(2)), _times(Fraction(4)), _times(Fraction(9))
    ('twice', 'four times', '9 times')
    """
    words = {Fraction(2): "twice", Fraction(3): "three times", Fraction(4): "four times"}
    return words.get(factor, f"{factor} times")
