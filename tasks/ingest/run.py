"""Ingest of a run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from tasks.files import replacing
from tasks.ingest.histograms import write_histogram
from tasks.ingest.identity import store_identity
from tasks.ingest.inputs import IngestResult, InputCheck, check_inputs
from tasks.ingest.invariants import write_invariants, write_state_totals
from tasks.ingest.outcomes import write_input_outcomes
from tasks.ingest.tables import IDENTITY
from tasks.measurement.digests import (
    PERSON_COLUMNS,
    InputDigest,
    input_digest,
)
from tasks.run_directory import RunDirectory
from tasks.settings.topdown import TopdownSettings


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
    store_identity(run, settings, lambda key: input_digests(result, key))
    run.geography.parent.mkdir(parents=True, exist_ok=True)
    run.histogram("persons").parent.mkdir(parents=True, exist_ok=True)
    for universe, histogram in result.histograms.items():
        write_histogram(
            run.histogram(universe), histogram, result.geography["block_geocode"].to_numpy()
        )
    with replacing(run.geography) as part:
        pq.write_table(pa.Table.from_pandas(result.geography, preserve_index=False), part)
    write_invariants(run.invariants, result.invariants)
    write_state_totals(run.state_totals, {} if settings.blocks_only else result.state_totals)


def input_digests(result: IngestResult, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises these people and housing units again."""
    geocode = result.geography["block_geocode"].to_numpy().astype(np.int64)
    persons = result.identity
    block = np.repeat(geocode, np.diff(persons.indptr))
    columns = (block, *np.divmod(persons.indices, IDENTITY.shape[1]), persons.data)
    digests = {
        "persons": input_digest("persons", dict(zip(PERSON_COLUMNS, columns, strict=True)), key)
    }
    if "units" in result.histograms:
        units = sparse.coo_array(result.histograms["units"])
        columns = {"block_geocode": geocode[units.row], "cell": units.col, "units": units.data}
        digests["units"] = input_digest("units", columns, key)
    return digests


def read_geography(path: Path) -> pd.DataFrame:
    """The geography frame that an ingest wrote."""
    return pq.read_table(path).to_pandas()
