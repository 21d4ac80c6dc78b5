"""What the settings of a topdown run promise about the files of each universe."""

from __future__ import annotations

from ....validation.topdown.run_files import ExpectedUniverse
from ..measurement.constraints import bound_names, constraint_name
from ..settings import TopdownSettings
from .declared import cells_of
from .layout_facts import layout_facts


def expected_universe(settings: TopdownSettings, universe: str) -> ExpectedUniverse:
    """What the settings promise about a universe's files."""
    budget = settings.budget_of(universe)
    geolevels = tuple(budget.geolevel_shares)
    schema = settings.schema_of(universe)
    zeros = {
        f"{zero.name}_con": schema.positions(zero.where) for zero in settings.zeros_of(universe)
    }
    census = settings.compiled_census
    declared, order = census.universes[universe], census.geolevels
    constraints: dict[str, tuple[str, ...]] = {}
    for bounded in declared.bounded_queries:
        constraints |= dict.fromkeys(bound_names(bounded, schema), geolevels)
    for invariant in declared.invariants:
        name = constraint_name(invariant.name)
        if invariant.geolevel == order[-1]:
            constraints[name] = geolevels
        elif not settings.blocks_only:
            constraints[name] = (invariant.geolevel,)
            above = tuple(n for n in order[: order.index(invariant.geolevel)] if n in geolevels)
            if above:
                constraints[constraint_name(invariant.above or invariant.name)] = above
    return ExpectedUniverse(
        cells=cells_of(schema),
        geolevels=geolevels,
        total=None if budget.infinite else budget.total,
        query_shares=budget.query_shares,
        constraints=constraints | dict.fromkeys(zeros, geolevels),
        structural_zeros=zeros,
        is_pure=budget.is_pure,
        layout=layout_facts(schema, census),
        bounded_attribute=declared.bounded_attribute(schema),
        on_demand=settings.is_on_demand(universe),
    )
