"""What a declared census states exactly, in words made from its declaration."""

from __future__ import annotations

from spineflow.tasks.census.census import Held
from spineflow.tasks.census.declarations import Where
from spineflow.tasks.topdown.settings import TopdownSettings


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
        rows += [(f"{name}: {held.name}", _held(name, held)) for held in universe.held]
        rows += [
            (
                f"{name}: {relation.name}",
                f"a linear relation with the sign {relation.sign} holds in every geounit"
                + "".join(f", given the released {side.universe}" for side in relation.others),
            )
            for relation in universe.relations
        ]
        rows += [
            (
                f"{name}: {zero.name}",
                f"no {name} with {_levels(zero.where)}",
            )
            for zero in settings.zeros_of(name)
        ]
    return tuple(rows)


def _held(name: str, held: Held) -> str:
    """What is held to an earlier release, and what that costs."""
    among = f" with {_levels(held.where)}" if held.where else ""
    theirs = f" with {_levels(held.of)}" if held.of else ""
    return (
        f"{held.query} of {name}{among} in every geounit is that of {held.universe}{theirs} in the "
        f"earlier release {held.release}, whose own guarantee holds for it; holding to what is "
        "public costs nothing further"
    )


def _levels(where: Where) -> str:
    return " and ".join(
        f"{attribute} {', '.join(map(str, levels))}" for attribute, levels in where.items()
    )
