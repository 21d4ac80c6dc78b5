"""What a declared census states exactly, in words made from its declaration."""

from __future__ import annotations

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
                f"no {name} with "
                + " and ".join(
                    f"{attribute} {', '.join(map(str, levels))}"
                    for attribute, levels in zero.where.items()
                ),
            )
            for zero in settings.zeros_of(name)
        ]
    return tuple(rows)
