"""What a topdown run promises, and the independent checks that it kept it."""

from __future__ import annotations

import pyarrow as pa
from spineflow.tasks.census.invariants import FACILITY_COLUMNS, read_geography, read_invariants
from spineflow.tasks.census.queries import TOTAL
from spineflow.tasks.ledger.charging import refuse_unlike_ledger
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import accept
from spineflow.tasks.topdown.checks.declared import cells_of, check_declared_run
from spineflow.tasks.topdown.checks.layout_facts import layout_facts
from spineflow.tasks.topdown.checks.tabulated import tabulated
from spineflow.tasks.topdown.measurement.constraints import bound_names, constraint_name
from spineflow.tasks.topdown.paths import geography_file, invariants_file
from spineflow.tasks.topdown.release.margins import written_margins
from spineflow.tasks.topdown.release.tabulations.run import has_legacy, tabulated_universes
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.validation.outcome import Outcome
from spineflow.validation.topdown.margins import check_margins
from spineflow.validation.topdown.run_checks import run_checks
from spineflow.validation.topdown.run_files import ExpectedUniverse
from spineflow.validation.topdown.tabulations import check_tabulations


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
    if declared.bounds:
        constraints |= dict.fromkeys(bound_names(schema, census), geolevels)
    for invariant in declared.invariants:
        name = constraint_name(invariant.name)
        if invariant.geolevel == order[-1]:
            constraints[name] = geolevels
        elif not settings.blocks_only:
            constraints[name] = (invariant.geolevel,)
            above = tuple(n for n in order[: order.index(invariant.geolevel)] if n in geolevels)
            if above:
                constraints[constraint_name(TOTAL)] = above
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


def check_run(run: RunDirectory, settings: TopdownSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    refuse_unlike_ledger(run, settings)
    margins = [check_margins(run.unchecked_release)] if written_margins(run, settings) else []
    if settings.is_declared:
        return accept(run, settings, [*check_declared_run(run, settings), *margins])
    invariants = read_invariants(invariants_file(run))
    facilities = pa.table(
        {
            "block_geocode": pa.array(invariants["block_geocode"], pa.string()),
            "facilities": pa.array(invariants[list(FACILITY_COLUMNS)].sum(axis=1), pa.int64()),
        }
    )
    outcomes = run_checks(
        run.root,
        {universe: expected_universe(settings, universe) for universe in settings.run.universes},
        release_directory=run.unchecked_release,
        facilities=facilities,
        is_private=settings.is_private,
    )
    if tabulated_universes(settings):
        outcomes += check_tabulations(
            tabulated(
                run.unchecked_release,
                read_geography(geography_file(run)),
                [settings.schema_of(name) for name in tabulated_universes(settings)],
                has_legacy=has_legacy(settings),
                is_private=settings.is_private,
            )
        )
    return accept(run, settings, [*outcomes, *margins])
