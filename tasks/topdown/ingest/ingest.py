"""Ingest of a topdown run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.census.histograms import write_histogram
from spineflow.tasks.census.identity import input_digests
from spineflow.tasks.census.inputs import InputCheck, check_inputs
from spineflow.tasks.census.invariants import write_invariants, write_state_totals
from spineflow.tasks.ledger.identity import store_identity
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.settings import refuse_large_delta
from spineflow.tasks.tables.outcomes import write_input_outcomes
from spineflow.tasks.topdown.paths import geography_file, invariants_file, state_totals_file
from spineflow.tasks.topdown.settings import TopdownSettings


def check_input_of(settings: TopdownSettings) -> InputCheck:
    """Read and check the tables that the settings name; messages show their file names."""
    tables = settings.input.paths()
    universes = settings.run.universes
    return check_inputs(
        **tables,
        person_schema=settings.schema_of("persons") if "persons" in universes else None,
        unit_schema=settings.schema_of("units") if "units" in universes else None,
        names={name: path.rpartition("/")[2] for name, path in tables.items()},
    )


def refuse_large_deltas(settings: TopdownSettings, n_persons: int) -> None:
    """Refuse a delta of a universe's guarantee as `refuse_large_delta` does."""
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        if not budget.is_pure:
            key = f"budget.{universe}.delta"
            refuse_large_delta(settings, budget.delta, n_persons, key)


def ingest_input(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the geography, the declared invariants and the confidential histograms of a run.

    Keyed digests of the people are stored with the histograms, unless the run is not private. The
    state totals come last: where they are, all is. Raises InputRefused for input that breaks a
    rule; its counts are then in `confidential/findings.json`, and for input that is not
    confidential in the message too.
    """
    check = check_input_of(settings)
    write_input_outcomes(run, check.outcomes, check.findings, stamp=settings.stamp)
    result = check.accepted(with_counts=not settings.input.confidential)
    refuse_large_deltas(settings, sum(result.state_totals.values()))
    store_identity(run, settings, lambda key: input_digests(result, key))
    geography_file(run).parent.mkdir(parents=True, exist_ok=True)
    run.histogram("persons").parent.mkdir(parents=True, exist_ok=True)
    for universe, histogram in result.histograms.items():
        write_histogram(
            run.histogram(universe), histogram, result.geography["block_geocode"].to_numpy()
        )
    with replacing(geography_file(run)) as part:
        pq.write_table(pa.Table.from_pandas(result.geography, preserve_index=False), part)
    write_invariants(invariants_file(run), result.invariants)
    write_state_totals(state_totals_file(run), {} if settings.blocks_only else result.state_totals)
