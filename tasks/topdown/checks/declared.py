"""What the declaration of a census promises of a release, in plain facts, and its checks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.declared import declared_units
from ....validation.outcome import Outcome
from ....validation.topdown.cells import Cells
from ....validation.topdown.declared import (
    ColumnLayout,
    DeclaredUniverse,
    ExpectedBound,
    ExpectedTie,
    check_declared,
)
from ....validation.topdown.descriptions import SEPARATOR, ExpectedDescription
from ....validation.topdown.run_files import ExpectedUniverse
from ...census.census import Held
from ...census.declarations import DescribedByDeclaration
from ...census.declared_input import read_multiples
from ...census.invariants import read_geography
from ...census.queries import counted_rows, marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ..measurement.public_answers import read_declared_totals, read_held
from ..paths import (
    geography_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..release.described import description
from ..release.microdata import codes_of
from ..settings import TopdownSettings
from ..spine.files import read_spine


def cells_of(schema: Schema) -> Cells:
    """A schema in plain facts, from which the checks number its cells anew."""
    sizes = dict(zip(schema.attributes, schema.shape, strict=True))
    groups = {c.name: (c.attribute, c.groups) for c in schema.coarsenings}
    return Cells(schema.universe, sizes, groups)


def _layout(settings: TopdownSettings, universe: str, schema: Schema) -> ColumnLayout | None:
    """The columns of a universe's microdata in plain facts; None where they have labels."""
    own_universe = settings.compiled_census.universes[universe]
    declared = own_universe.declared.microdata
    if declared is None:
        return None
    described = description(settings, own_universe)
    further = () if described is None else described[0].columns
    told = {}
    for attribute in schema.attributes:
        own = [column for column in declared.columns if column.attribute == attribute]
        codes = [
            column.codes
            or [
                f"{(column.first or 0) + level:0{column.width}d}"
                for level in range(len(schema.labels(attribute)))
            ]
            for column in own
        ]
        told[attribute] = (tuple(c.name for c in own), list(zip(*codes, strict=True)))
    return ColumnLayout(
        tuple(column.name for column in (*declared.columns, *further)),
        tuple(column.name for column in declared.columns if column.digits is not None),
        told,
        {c.name: c.constant for c in declared.columns if c.constant is not None},
        next((column.name for column in declared.columns if column.number), None),
        None if described is None else _described(settings, schema, *described),
    )


def _described(
    settings: TopdownSettings, schema: Schema, told: DescribedByDeclaration, held: Held
) -> ExpectedDescription:
    """The columns that tell more of records, in plain facts."""
    later = settings.schema_of(told.universe)
    entries = sparse.coo_array(counted_rows(later, schema, held.query, held.where, held.of))
    row = np.full(schema.n_cells, -1)
    row[entries.row] = entries.col
    columns = {}
    for column in told.columns:
        query = column.attribute or ""
        columns[column.name] = query, codes_of(column, marginal_query(later, query).n_rows)
    return ExpectedDescription(told.universe, held.query, row, columns, told.otherwise)


def check_declared_run(run: RunDirectory, settings: TopdownSettings) -> tuple[Outcome, ...]:
    """Outcomes of all checks of a run of a declared census."""
    areas = read_geography(geography_file(run))
    universes = {name: _promised(run, settings, name, areas) for name in settings.run.universes}
    return check_declared(
        run.root, universes, areas, run.unchecked_release, is_private=settings.is_private
    )


def _tie(settings: TopdownSettings, schema: Schema, held: Held) -> ExpectedTie:
    """Answers that are those of another universe of the run, in plain facts."""
    told = settings.schema_of(held.universe)
    entries = sparse.coo_array(counted_rows(schema, told, held.query, held.where, held.of))
    row = np.full(told.n_cells, -1)
    row[entries.row] = entries.col
    return ExpectedTie(held.query, schema.cells_where(held.where), held.universe, row)


def _promised(
    run: RunDirectory, settings: TopdownSettings, name: str, areas: pd.DataFrame
) -> DeclaredUniverse:
    census, schema = settings.compiled_census, settings.schema_of(name)
    universe, budget = census.universes[name], settings.budget_of(name)
    geolevels = census.areas.geolevels
    columns = tuple(level for level in geolevels[1:] if level in areas.columns)
    public = pq.read_table(invariants_file(run)).to_pandas()
    exact = {}
    for invariant in universe.invariants:
        totals = read_declared_totals(state_totals_file(run))[name][invariant.name]
        depth = geolevels.index(invariant.geolevel)
        named = tuple(level for level in geolevels[1 : depth + 1] if level in areas.columns)
        unit = declared_units(areas, geolevels)[invariant.geolevel]
        first = np.unique(unit.number, return_index=True)[1]
        keys = [SEPARATOR.join(areas[level].iloc[row] for level in named) for row in first]
        exact[invariant.name] = (
            invariant.query,
            named,
            {key: totals[path] for key, path in zip(keys, unit.path.tolist(), strict=True)},
        )
    bounds = []
    for number, bound in enumerate(universe.bounds):
        counted = read_multiples(public, name, number)
        low, high = (
            None if factor is None else factor * counted
            for factor in (bound.at_least, bound.at_most)
        )
        inside = schema.cells_where(bound.where)
        bounds.append(ExpectedBound(bound.name, bound.query, inside, low, high))
    earlier = any(held.release is not None for held in universe.held)
    answers = read_held(run, settings, name, len(areas)) if earlier else {}
    return DeclaredUniverse(
        expected=ExpectedUniverse(
            cells=cells_of(schema),
            geolevels=read_spine(spine_folder(run, name)).names,
            total=None if budget.infinite else budget.total,
            query_shares=budget.query_shares,
            constraints={},
            structural_zeros={},
            is_pure=budget.is_pure,
            on_demand=settings.is_on_demand(name),
        ),
        labels={attribute: schema.labels(attribute) for attribute in schema.attributes},
        layout=_layout(settings, name, schema),
        columns=columns,
        count=universe.declared.count,
        zeros={zero.name: schema.cells_where(zero.where) for zero in settings.zeros_of(name)},
        exact=exact,
        bounds=tuple(bounds),
        held={
            held.name: (held.query, schema.cells_where(held.where), answers[held.name])
            for held in universe.held_earlier
        },
        tied={held.name: _tie(settings, schema, held) for held in universe.held_beside},
        relations={
            relation.name: (
                relation.sign,
                {name: relation.own, **{s.universe: s.weights for s in relation.others}},
            )
            for relation in universe.relations
        },
    )
