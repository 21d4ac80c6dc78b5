"""Answers that leave a census without noise: of which universe, by which query, at which geolevel.

An invariant is exact at its geolevel. The records that a bound is per are exact in every finest
area, by the query that matches them with the bounded ones, whether their universe is run or not.
Runs on blocks include the universes that scale bounds, whatever they release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from .census import Bound, Census, Universe
from .queries import TOTAL, marginal_query


@dataclass(frozen=True)
class ExactAnswers:
    """The answers to a query on a universe, which are exact in every geounit of a geolevel.

    of : the universe whose declaration makes them exact.
    reason : the declaration that does, such as `the bound 'total per dwellings'`.
    invariant : name of the invariant that does; None for another reason.
    """

    universe: str
    query: str
    geolevel: str
    of: str
    reason: str
    invariant: str | None = None

    @property
    def key(self) -> str:
        """Name of the answers, such as `total of persons at State`."""
        return f"{self.query} of {self.universe} at {self.geolevel}"


def exact_answers(
    census: Census, universes: Sequence[str], *, areas_alone: bool = False
) -> tuple[ExactAnswers, ...]:
    """Everything about records that leaves exactly when these universes are run, each once.

    Where the areas are estimated alone, invariants above them are not held.
    """
    found: dict[str, ExactAnswers] = {}
    for answers in _answers(census, universes):
        is_above = answers.geolevel != census.geolevels[-1]
        if not (areas_alone and is_above):
            found.setdefault(answers.key, answers)
    return tuple(found.values())


def _answers(census: Census, universes: Sequence[str]) -> Iterator[ExactAnswers]:
    last = census.geolevels[-1]
    for name in universes:
        for invariant in census.universes[name].invariants:
            reason = f"the invariant {invariant.name!r}"
            yield ExactAnswers(
                name, invariant.query, invariant.geolevel, name, reason, invariant.name
            )
    # Spines need the addresses, for every choice of universes.
    for name in census.universes if census.follows_block_rules else universes:
        universe = census.universes[name]
        for bound in universe.bounds:
            reason = f"the bound {bound.name!r}"
            yield ExactAnswers(bound.per, bound.by or TOTAL, last, name, reason)
        microdata = universe.declared.microdata
        if microdata is not None and microdata.further is not None and name in universes:
            reason = "the further rows of microdata"
            yield ExactAnswers(microdata.further.universe, TOTAL, last, name, reason)


AREAS = "areas"
"""Key of the fact that all columns of the table of areas are public."""


def bound_key(universe: str, bound: Bound) -> str:
    """Name of the fact that a bound of a universe holds."""
    return f"bound {bound.name} of {universe} per {bound.per}"


def refuse_unknown_facts(census: Census, refuse: Callable[[str], None]) -> None:
    """Refuse sentences of the certificate about facts that no declaration makes exact."""
    known = {AREAS, *(answers.key for answers in exact_answers(census, list(census.universes)))}
    for name, universe in census.universes.items():
        known |= {bound_key(name, bound) for bound in universe.bounds}
    for sentence in census.declared.certificate:
        for key in sentence.tells:
            if sentence.about != "exact" or key not in known:
                refuse(
                    f"census.certificate names {key!r}, which is no exact fact; there are "
                    f"{', '.join(sorted(known))}"
                )


def refuse_protected_answers(
    census: Census,
    universes: Sequence[str],
    budgeted: Collection[str],
    refuse: Callable[[str], None],
) -> None:
    """Refuse exact answers, except invariants, that would publish protected values.

    The graph of influence traces them to columns of tables: those of the query that matches them,
    of the conditions on their records, and those that determine their areas and number. Columns of
    occupants or computed from other records are refused, and so are those of a universe with a
    budget, by a query that no invariant of it in the finest areas determines. Numbers of a universe
    that declares itself public are so although another protects records of its table. How many
    records a universe has, and with it every other of the same records, is public by the
    declaration of a bound.
    """
    for answers in exact_answers(census, universes):
        if answers.invariant is not None:
            continue
        per = census.universes[answers.universe]
        by = {
            column
            for name in _attributes(per, answers.query)
            for column in per.recodes[name].columns
        }
        numbers = f"number of {per.name}"
        if by:
            numbers = f"numbers of {per.name} by {answers.query!r}"
        what = f"{answers.reason.removeprefix('the ')} of {answers.of} would publish the exact "
        what += f"{numbers} in every {answers.geolevel}"
        remove = f"take {answers.reason} out"
        if told := _occupants_of(per, {*by, *per.rows}):
            refuse(
                f"{what}, which depend on their occupants ({', '.join(told)}); take the bound "
                "out, or make it per a universe without occupants"
            )
        if made := _made_columns(per, {*by, *per.rows}):
            refuse(
                f"{what}, by {made[0]}, which is made from records of others; {remove}, or make it "
                "per a universe that does not read this column"
            )
        for name in dict.fromkeys((per.name, *sorted(budgeted))):
            own = census.universes[name]
            if name not in budgeted or (per.declared.public and name != per.name):
                continue
            columns = sorted(_published(per, by, own))
            if columns and not _is_invariant(own, per, answers):
                table, column = columns[0]
                refuse(
                    f"{what}, which budget.{name} protects; take `by` out, or declare "
                    f"{answers.query!r} an invariant of {name} at {census.geolevels[-1]}, or leave "
                    f"budget.{name} out"
                    if name == per.name
                    else f"{what}, by {column} of {table}, which budget.{name} protects; {remove}, "
                    f"or declare `public = true` in universe {per.name!r} if these numbers are "
                    "public facts, as those of addresses are"
                )


def _attributes(universe: Universe, query: str) -> list[str]:
    """Attributes whose levels a query distinguishes."""
    shape = marginal_query(universe.schema, query).shape
    return [name for name, size in zip(universe.schema.attributes, shape, strict=True) if size > 1]


def _columns(universe: Universe, asked: Collection[str]) -> set[tuple[str, str]]:
    """Tables and columns there, of columns as attributes and conditions name them."""
    return {
        (path.table, column)
        for path in universe.paths
        for column in path.columns
        if (f"{path.name}.{column}" if path.name else column) in asked
    }


def _places(universe: Universe) -> set[tuple[str, str]]:
    """Tables and columns that say where the records of a universe are, and how many a row is."""
    paths = (universe.own_path, *universe.step_paths)
    return {(path.table, column) for path in paths for column in path.references}


def _published(per: Universe, by: Collection[str], own: Universe) -> set[tuple[str, str]]:
    """Tables and columns by which exact numbers of a universe publish what another protects.

    Conditions that both have in common reveal nothing about the records of either.
    """
    if own is per or _are_alike(own, per):
        return _columns(per, by) & _protected(own)
    is_one_table = own.declared.table == per.declared.table
    common = [c for c, codes in per.rows.items() if is_one_table and own.rows.get(c) == codes]
    told = _columns(per, {*by, *per.rows} - {*common})
    # Where records of another table are is found there; of one's own it is the number declared.
    areas = {
        place for place in _places(own) if place[0] == own.declared.table != per.declared.table
    }
    return (told & _protected(own)) | (_places(per) & (_protected(own) | areas))


def _are_alike(one: Universe, other: Universe) -> bool:
    """Whether two universes have the same records in the same areas."""
    first, second = one.declared, other.declared
    return (
        one.rows == other.rows
        and first.steps == second.steps
        and (first.table, first.area, first.count) == (second.table, second.area, second.count)
    )


def _protected(universe: Universe) -> set[tuple[str, str]]:
    """Tables and columns whose values a universe protects: all that it reads of its records in
    tables whose records it protects, and the column with the number of records in a row.
    """
    protected = {reach.table for reach in universe.reaches if reach.records is not None}
    declared = universe.declared
    found = {
        (path.table, column)
        for path in universe.paths
        if path.table in protected
        for column in (*path.columns, *path.conditions)
    }
    return found | ({(declared.table, declared.count)} if declared.count else set())


def _occupants_of(universe: Universe, asked: Collection[str]) -> list[str]:
    """Names of the occupants of a universe that provide some columns."""
    return [
        name
        for name in universe.occupant_paths
        if any(column.startswith(f"{name}.") for column in asked)
    ]


def _made_columns(universe: Universe, asked: Collection[str]) -> list[str]:
    """Columns, among those given and those for the number and area of records, that are made from
    records other than a universe's own.
    """
    found = _columns(universe, asked) | _places(universe)
    return sorted(
        f"{column} of {table}"
        for table in {table for table, _ in found}
        for column in universe.graph.made_from(universe.name, table)
        if (table, column) in found
    )


def _is_invariant(own: Universe, per: Universe, answers: ExactAnswers) -> bool:
    """Whether an invariant of a universe determines the numbers of another, of the same records, by
    a query in every area.
    """
    found = [one.query for one in own.invariants if one.geolevel == answers.geolevel]
    if own is per:
        wanted = marginal_query(per.schema, answers.query)
        return any(marginal_query(per.schema, one).refines(wanted) for one in found)
    tokens = {part.strip() for part in answers.query.split("*")}
    return _are_alike(own, per) and any(
        tokens <= {part.strip() for part in one.split("*")} for one in found
    )
