"""The guarantee and the exact statements of a topdown run, in words.

Sentences of a declared census replace the ones that are made from its declaration.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...census.declarations import SentenceDeclaration
from ...census.influence import Norms
from ...ledger.accounting import compose
from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import TopdownSettings
from .costs import guarantee_of
from .declared_statements import declared_statements
from .protected_tables import per_person, protected_tables


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
    for sentence in settings.compiled_census.certificate:
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
