"""Protected records of a run: the input tables by name, and the cost of a change in each."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...census.census import Universe
from ...census.influence import Reach
from ...ledger.accounting import compose
from ..settings import TopdownSettings
from .costs import guarantee_of


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
    steps = universe.steps
    first = next(number for number, step in enumerate(steps) if step.table == table)
    behind = tuple(f"{step.table}." for step in steps[first:])
    asked = [column for recode in universe.recodes.values() for column in recode.columns]
    yield "their area"
    for column in dict.fromkeys([*asked, *universe.rows]):
        if column.startswith(behind):
            yield column


def _times(factor: Fraction) -> str:
    """
    >>> _times(Fraction(2)), _times(Fraction(4)), _times(Fraction(9))
    ('twice', 'four times', '9 times')
    """
    words = {Fraction(2): "twice", Fraction(3): "three times", Fraction(4): "four times"}
    return words.get(factor, f"{factor} times")
