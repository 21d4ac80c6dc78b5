"""What the settings of a topdown run promise about the files of each universe, and the declared
layout of its microdata in the plain facts that their check goes by.
"""

from __future__ import annotations

from dataclasses import replace

from ....validation.topdown.cells import Cells
from ....validation.topdown.layout import Layout, LayoutColumn
from ....validation.topdown.run_files import ExpectedUniverse
from ...census.cef_2020 import CENSUS
from ...census.census import Census
from ...census.microdata import codes_of, layout_of
from ...census.schema import Schema
from ..measurement.constraints import bound_names, constraint_name
from ..release.microdata import present_columns
from ..settings import TopdownSettings


def layout_facts(
    schema: Schema, census: Census = CENSUS, geolevels: tuple[str, ...] = ()
) -> Layout:
    """The layout of a universe's microdata in plain facts: the declared one, or else labels.

    `geolevels` are those that areas have codes of, where geocodes are no digits of a block's.
    """
    universe = census.universes[schema.universe].declared
    if universe.microdata is None:
        places = tuple(LayoutColumn(name, geolevel=name) for name in geolevels)
        labels = tuple(
            LayoutColumn(name, attribute=name, codes=tuple(map(str, schema.labels(name))))
            for name in schema.attributes
        )
        return Layout((*places, *labels), count=universe.count, has_quotes=True)
    declared = layout_of(schema.universe, census)
    columns, of_areas = [], iter(geolevels)
    for column in present_columns(declared, schema, universe.attributes):
        attribute: str | None = None
        codes: tuple[str, ...] = ()
        if column.attribute is not None:
            grouping = schema.grouping(column.attribute)
            of_level = codes_of(column, max(grouping.groups) + 1)
            attribute, codes = (
                grouping.attribute,
                tuple(of_level[group] for group in grouping.groups),
            )
        geolevel = None if column.digits is None else next(of_areas, None)
        digits = column.digits if geolevel is None else None
        columns.append(
            LayoutColumn(
                column.name, column.constant, digits, geolevel, column.number, attribute, codes
            )
        )
    further = {} if declared.further is None else declared.further.values
    return Layout(tuple(columns), further)


def cells_of(schema: Schema) -> Cells:
    """A schema in plain facts, from which the checks number its cells anew."""
    sizes = dict(zip(schema.attributes, schema.shape, strict=True))
    groups = {c.name: (c.attribute, c.groups) for c in schema.coarsenings}
    return Cells(schema.universe, sizes, groups)


def expected_universe(
    settings: TopdownSettings, universe: str, geolevels: tuple[str, ...] | None = None
) -> ExpectedUniverse:
    """What the settings promise about a universe's files, on a spine of some geolevels, or else of
    those with a share. Files of constraints, and the layout of the microdata, are told where that
    needs no areas.
    """
    census, budget = settings.compiled_census, settings.budget_of(universe)
    geolevels, schema = geolevels or tuple(budget.geolevel_shares), settings.schema_of(universe)
    needs_areas = census.area_rules.promises_need_areas
    zeros = {
        zero.name if needs_areas else constraint_name(zero.name): schema.positions(zero.where)
        for zero in settings.zeros_of(universe)
    }
    expected = ExpectedUniverse(
        cells=cells_of(schema),
        geolevels=geolevels,
        total=None if budget.infinite else budget.total,
        query_shares=budget.query_shares,
        constraints=None,
        structural_zeros=zeros,
        is_pure=budget.is_pure,
        has_digits=census.area_rules.geocodes_tell_geolevels,
        on_demand=settings.is_on_demand(universe),
    )
    if needs_areas:
        return expected
    constraints = _constraints(settings, universe, geolevels)
    return replace(
        expected,
        constraints=constraints | dict.fromkeys(zeros, geolevels),
        layout=layout_facts(schema, census),
    )


def _constraints(
    settings: TopdownSettings, universe: str, geolevels: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """The geolevels at which every geounit has each bound and invariant."""
    census, schema = settings.compiled_census, settings.schema_of(universe)
    declared, order = census.universes[universe], census.geolevels
    constraints: dict[str, tuple[str, ...]] = {}
    for bounded in declared.bounded_queries:
        constraints |= dict.fromkeys(bound_names(bounded, schema), geolevels)
    for agreement in declared.agreements:
        names = (constraint_name(agreement.name, ending) for ending in ("_lb", "_ub"))
        constraints |= dict.fromkeys(names, geolevels)
    for invariant in declared.invariants:
        name = constraint_name(invariant.name)
        if invariant.geolevel == order[-1]:
            constraints[name] = geolevels
        elif not settings.blocks_only:
            constraints[name] = (invariant.geolevel,)
            above = tuple(n for n in order[: order.index(invariant.geolevel)] if n in geolevels)
            if above:
                constraints[constraint_name(invariant.above or invariant.name)] = above
    return constraints
