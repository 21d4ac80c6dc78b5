"""What the declaration of a census promises of a release, in plain facts, and its checks.

Universes that agree are told to the independent check by columns and codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....geography.declared import Units, declared_units
from ....validation.topdown.agreements import AgreeingRows, ExpectedNumbers
from ....validation.topdown.declarations import (
    ExpectedAnswers,
    ExpectedBound,
    ExpectedConstraint,
    ExpectedDeclarations,
    ExpectedTie,
    ExpectedUnits,
)
from ....validation.topdown.layout import ExpectedDescription
from ....validation.topdown.run_files import ExpectedUniverse
from ...census.areas import code_columns
from ...census.attribute_declarations import HOUSEHOLDERS, SIZES, AgreeDeclaration, Where
from ...census.census import Held, Universe, Zero
from ...census.declarations import DescribedByDeclaration
from ...census.declared_input import read_multiples
from ...census.microdata import codes_of
from ...census.queries import label_parts, marginal_query, rows_that_count
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ..measurement.constraints import bound_names, constraint_name
from ..measurement.public_answers import read_declared_totals, read_held
from ..paths import (
    geography_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..release.microdata import description
from ..settings import TopdownSettings
from ..spine.files import read_spine
from .expectations import expected_universe, layout_facts

AGREE = "released_universes_agree"
HOUSEHOLDERS_AGREE, SIZES_AGREE = "householders_agree", "sizes_agree"


def _described(
    settings: TopdownSettings, schema: Schema, declared: DescribedByDeclaration, held: Held
) -> ExpectedDescription:
    """The columns that tell more of records, in plain facts."""
    later = settings.schema_of(declared.universe)
    row = rows_that_count(later, schema, held.query, held.where, held.of)
    columns = {}
    for column in declared.columns:
        query = column.attribute or ""
        columns[column.name] = query, codes_of(column, marginal_query(later, query).n_rows)
    return ExpectedDescription(declared.universe, held.query, row, columns, declared.otherwise)


def _tie(settings: TopdownSettings, schema: Schema, held: Held) -> ExpectedTie:
    """Answers that are those of another universe of the run, in plain facts."""
    other_schema = settings.schema_of(held.universe)
    row = rows_that_count(schema, other_schema, held.query, held.where, held.of)
    return ExpectedTie(held.query, schema.cells_where(held.where), held.universe, row)


def declared_universe(
    run: RunDirectory, settings: TopdownSettings, name: str, areas: pd.DataFrame
) -> ExpectedUniverse:
    """What a declaration promises of a universe's files, on these areas."""
    census, schema = settings.compiled_census, settings.schema_of(name)
    universe = census.universes[name]
    geolevels = census.geography.geolevels
    public = pq.read_table(invariants_file(run)).to_pandas()
    exact, units = {}, declared_units(areas, geolevels)
    for invariant in universe.invariants:
        totals = read_declared_totals(state_totals_file(run))[name][invariant.name]
        unit = units[invariant.geolevel]
        due = np.array([totals[path] for path in unit.path.tolist()], dtype=np.int64)
        exact[invariant.name] = ExpectedAnswers(invariant.query, unit.number, due)
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
    layout = layout_facts(schema, census, code_columns(geolevels, areas.columns))
    described = description(settings, universe)
    if described is not None:
        layout = replace(layout, described=_described(settings, schema, *described))
    declared = ExpectedDeclarations(
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
        constraints=tuple(_constraints(universe, schema, settings.zeros_of(name), units)),
    )
    expected = expected_universe(settings, name, read_spine(spine_folder(run, name)).names)
    return replace(expected, layout=layout, declared=declared)


def _constraints(
    universe: Universe, schema: Schema, zeros: Sequence[Zero], units: Mapping[str, Units]
) -> Iterator[ExpectedConstraint]:
    """What files of constraints have of a universe."""
    for bounded in universe.bounded_queries:
        first, n_rows = bounded.bounds[0], bounded.asked(schema).n_rows
        sides = zip(bound_names(bounded, schema), (">=", "<="), strict=True)
        for (named, sign), limit in zip(sides, (first.at_least, first.at_most), strict=True):
            if limit is not None:
                yield ExpectedConstraint(named, sign, n_rows)
    for agreement in universe.agreements:
        n_rows = marginal_query(schema, agreement.query).n_rows
        for ending, sign in (("_lb", ">="), ("_ub", "<=")):
            yield ExpectedConstraint(constraint_name(agreement.name, ending), sign, n_rows)
    for invariant in universe.invariants:
        unit, listed = units[invariant.geolevel], None
        if invariant.above is not None:
            listed = invariant.geolevel, constraint_name(invariant.above)
        yield ExpectedConstraint(
            constraint_name(invariant.name),
            "=",
            marginal_query(schema, invariant.query).n_rows,
            ExpectedUnits(unit.number, unit.path, listed),
        )
    for held in universe.held:
        n_rows = marginal_query(schema, held.query).n_rows
        yield ExpectedConstraint(constraint_name(held.name), "=", n_rows)
    for relation in universe.relations:
        yield ExpectedConstraint(constraint_name(relation.name), relation.sign, 1)
    for zero in zeros:
        yield ExpectedConstraint(constraint_name(zero.name), "=", 1)


def expected_agreements(run: RunDirectory, settings: TopdownSettings) -> Iterator[ExpectedNumbers]:
    """The agreements of all universes of a run, on the microdata that are to be released."""
    census = settings.compiled_census
    for name in settings.run.universes:
        for one in census.universes[name].agreements:
            rows = _rows(run, settings, name, one.where)
            others = _rows(run, settings, one.universe, one.of)
            if one.kind == HOUSEHOLDERS:
                yield _householders(settings, name, one, rows, others)
            elif one.kind == SIZES:
                yield _sizes(settings, name, one, rows, others)
            else:
                yield ExpectedNumbers(AGREE, name, rows, others, others, one.most)


def _householders(
    settings: TopdownSettings,
    name: str,
    one: AgreeDeclaration,
    rows: AgreeingRows,
    others: AgreeingRows,
) -> ExpectedNumbers:
    """As many of both by every answer, which the attributes of each tell by their own codes."""
    parts = [part for part, _, _ in label_parts(settings.schema_of(name), one.query)]
    of_rows = tuple(_column_and_levels(settings, name, part) for part in parts)
    of_others = tuple(
        _column_and_levels(settings, one.universe, one.called.get(part, part)) for part in parts
    )
    due = replace(others, kinds=of_others)
    return ExpectedNumbers(HOUSEHOLDERS_AGREE, name, replace(rows, kinds=of_rows), due, due)


def _sizes(
    settings: TopdownSettings,
    name: str,
    one: AgreeDeclaration,
    rows: AgreeingRows,
    others: AgreeingRows,
) -> ExpectedNumbers:
    """As many people as the sizes of the others have room for."""
    column, level_of_code = _column_and_levels(settings, one.universe, one.size or "")
    least, most = (
        {code: one.people.get(level, (0, 0))[side] for code, level in level_of_code.items()}
        for side in (0, 1)
    )
    return ExpectedNumbers(
        SIZES_AGREE,
        name,
        rows,
        replace(others, weights=(column, least)),
        replace(others, weights=(column, most)),
    )


def _column_and_levels(
    settings: TopdownSettings, universe: str, name: str
) -> tuple[str, dict[str, str]]:
    """The column that tells an attribute or a coarsening of it, and the level of each code."""
    schema = settings.schema_of(universe)
    grouping = schema.grouping(name)
    levels = [grouping.levels[group] for group in grouping.groups]
    column, codes = _codes(settings, universe, grouping.attribute)
    return column, dict(zip(codes, levels, strict=True))


def _codes(settings: TopdownSettings, universe: str, attribute: str) -> tuple[str, list[str]]:
    """The column of microdata that tells an attribute, and the code of each of its levels."""
    labels = [str(label) for label in settings.schema_of(universe).labels(attribute)]
    microdata = settings.compiled_census.universes[universe].declared.microdata
    if microdata is None:
        return attribute, labels
    column = next(column for column in microdata.columns if column.attribute == attribute)
    return column.name, list(codes_of(column, len(labels)))


def _rows(
    run: RunDirectory, settings: TopdownSettings, universe: str, where: Where
) -> AgreeingRows:
    census = settings.compiled_census
    declared = census.universes[universe].declared
    file = run.unchecked_release / f"mdf_{universe}.parquet"
    codes = {}
    for attribute, chosen in settings.schema_of(universe).positions(where).items():
        column, of_levels = _codes(settings, universe, attribute)
        codes[column] = [of_levels[at] for at in chosen]
    if declared.microdata is None:
        area = code_columns(census.geolevels, pq.read_schema(geography_file(run)).names)
        return AgreeingRows(file, area, codes, declared.count)
    columns = declared.microdata.columns
    return AgreeingRows(file, [one.name for one in columns if one.digits is not None], codes)
