"""Answers that leave a census without noise: of which universe, by which query, at which geolevel.

An invariant is exact at its geolevel. The records that a bound is per are exact in every finest
area, by the query that matches them with the bounded ones, whether their universe is run or not.
Runs on blocks have what bounds are per, whatever they release.
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
    reason : what in it does, such as `the bound 'total per dwellings'`.
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
    # Spines need the addresses, whatever is run.
    for name in census.universes if census.area_rules.have_addresses else universes:
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
    """Refuse sentences of the certificate that tell what no declaration makes exact."""
    known = {AREAS, *(answers.key for answers in exact_answers(census, list(census.universes)))}
    for name, universe in census.universes.items():
        known |= {bound_key(name, bound) for bound in universe.bounds}
    for sentence in census.certificate:
        for key in sentence.tells:
            if sentence.about != "exact" or key not in known:
                refuse(
                    f"census.certificate tells {key!r}, which is no exact fact; there are "
                    f"{', '.join(sorted(known))}"
                )


def refuse_protected_answers(
    census: Census,
    universes: Sequence[str],
    budgeted: Collection[str],
    refuse: Callable[[str], None],
) -> None:
    """Refuse bounds that would publish exactly what is protected.

    These are the records of a universe that has a budget, by a query that none of its invariants in
    the finest areas tells; and the records of a universe that others tell, its occupants.
    """
    for name in universes:
        for bound in census.universes[name].bounds:
            per = census.universes[bound.per]
            what = f"bound {bound.name!r} of {name}"
            numbers = f"number of {per.name}"
            if bound.by is not None:
                numbers = f"numbers of {per.name} by {bound.by!r}"
            published = f"would publish the exact {numbers} in every {census.geolevels[-1]}"
            if _is_derived_from_occupants(per, bound):
                refuse(
                    f"{what} {published}, which their occupants tell ("
                    f"{', '.join(per.declared.occupants)}); take the bound out, or make it per a "
                    "universe without occupants"
                )
            if bound.by is not None and per.name in budgeted and not _is_invariant(census, bound):
                refuse(
                    f"{what} {published}, which budget.{per.name} protects; take `by` out, or "
                    f"declare {bound.by!r} an invariant of {per.name} at {census.geolevels[-1]}, "
                    f"or leave budget.{per.name} out"
                )


def _is_derived_from_occupants(per: Universe, bound: Bound) -> bool:
    """Whether other records tell what a bound publishes: by a query, or which records there are."""
    own = {column.partition(".")[0] for column in per.rows if "." in column}
    return bool(per.declared.occupants) and (
        bound.by is not None or not own.isdisjoint(per.declared.occupants)
    )


def _is_invariant(census: Census, bound: Bound) -> bool:
    """Whether an invariant of the universe that a bound is per tells its rows in every area."""
    per = census.universes[bound.per]
    wanted = marginal_query(per.schema, bound.by or TOTAL)
    return any(
        invariant.geolevel == census.geolevels[-1]
        and marginal_query(per.schema, invariant.query).refines(wanted)
        for invariant in per.invariants
    )
