"""Checks of a run, and the publication of what passed them."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import CheckFailed
from tasks.files import NOT_PRIVATE, STAMP_KEY, replacing
from tasks.ingest.invariants import FACILITY_COLUMNS, read_invariants
from tasks.ingest.run import read_geography
from tasks.measurement.constraints import STATE_TOTAL, TOTAL, bound_names
from tasks.release.tabulations.run import has_legacy, tabulated_universes
from tasks.run_directory import RunDirectory
from tasks.settings.topdown import TopdownSettings
from validation.outcome import Outcome, write_outcomes
from validation.run_checks import run_checks
from validation.run_files import ExpectedUniverse
from validation.tabulations import Tabulated, check_tabulations


def expected_universe(settings: TopdownSettings, universe: str) -> ExpectedUniverse:
    """What the settings promise about a universe's files."""
    budget = settings.budget_of(universe)
    geolevels = tuple(budget.geolevel_shares)
    zeros = {
        f"{zero.name}_con": zero.where for zero in settings.workload[universe].structural_zeros
    }
    if universe == "units":
        constraints = {TOTAL: geolevels}
    else:
        bounds = bound_names(settings.schema_of(universe))
        constraints = dict.fromkeys(bounds, geolevels)
        if not settings.blocks_only:
            constraints[STATE_TOTAL] = ("State",)
            if "US" in geolevels:
                constraints[TOTAL] = ("US",)
    return ExpectedUniverse(
        schema=settings.schema_of(universe),
        geolevels=geolevels,
        total=None if budget.infinite else budget.total,
        query_shares=budget.query_shares,
        constraints=constraints | dict.fromkeys(zeros, geolevels),
        structural_zeros=zeros,
    )


def check_run(run: RunDirectory, settings: TopdownSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    invariants = read_invariants(run.invariants)
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
            Tabulated(
                run.unchecked_release,
                read_geography(run.geography),
                tabulated_universes(settings),
                has_legacy(settings),
                settings.is_private,
            )
        )
    stamp = None if settings.is_private else NOT_PRIVATE
    write_outcomes(outcomes, run.checks, stamp=stamp)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        raise CheckFailed(
            f"The check {failed[0].name} of {failed[0].universe} failed "
            f"({len(failed)} of {len(outcomes)} did) and the release is withheld: "
            f"{failed[0].detail}; see {run.checks.name}/checks.json in the run directory."
        )
    return outcomes


def publish(run: RunDirectory) -> None:
    """Give the checked release its name in one step."""
    os.rename(run.unchecked_release, run.release)


def stamp_files(run: RunDirectory) -> None:
    """Put the stamp of a run that is not private on those of its Parquet files that lack it."""
    for path in run.root.rglob("*.parquet"):
        metadata = pq.read_schema(path).metadata or {}
        if metadata.get(STAMP_KEY.encode()) != NOT_PRIVATE.encode():
            table = pq.read_table(path)
            stamped = {**metadata, STAMP_KEY.encode(): NOT_PRIVATE.encode()}
            with replacing(path) as part:
                pq.write_table(table.replace_schema_metadata(stamped), part, compression="zstd")
