"""What the declaration of a census promises of a release, in plain facts, and its checks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.declared import declared_units
from ....validation.outcome import Outcome
from ....validation.topdown.declared import (
    SEPARATOR,
    ColumnLayout,
    DeclaredUniverse,
    ExpectedBound,
    ExpectedTie,
    check_declared,
)
from ....validation.topdown.run_checks import Findings
from ...census.census import Census, Held
from ...census.declared_input import read_multiples
from ...census.invariants import read_geography
from ...census.queries import counted_rows
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ..measurement.public_answers import read_declared_totals, read_held
from ..paths import (
    geography_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..settings import TopdownSettings
from ..spine.files import read_spine
from .expectations import expected_universe


def _layout(census: Census, universe: str, schema: Schema) -> ColumnLayout | None:
    """The columns of a universe's microdata in plain facts; None where they have labels."""
    declared = census.universes[universe].declared.microdata
    if declared is None:
        return None
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
        tuple(column.name for column in declared.columns),
        tuple(column.name for column in declared.columns if column.digits is not None),
        told,
        {c.name: c.constant for c in declared.columns if c.constant is not None},
        next((column.name for column in declared.columns if column.number), None),
    )


def check_declared_run(
    run: RunDirectory, settings: TopdownSettings, found: Mapping[str, Findings] | None = None
) -> tuple[Outcome, ...]:
    """Outcomes of all checks of a run of a declared census; `found` as of `check_declared`."""
    areas = read_geography(geography_file(run))
    universes = {name: _promised(run, settings, name, areas) for name in settings.run.universes}
    return check_declared(
        run.root, universes, areas, run.unchecked_release, found, is_private=settings.is_private
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
    universe = census.universes[name]
    geolevels = census.geography.geolevels
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
        expected=expected_universe(settings, name, read_spine(spine_folder(run, name)).names),
        labels={attribute: schema.labels(attribute) for attribute in schema.attributes},
        layout=_layout(census, name, schema),
        columns=columns,
        count=universe.declared.count,
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
