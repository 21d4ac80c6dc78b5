"""The people and housing units of census tables, as the ledger recognises them again."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from spineflow.tasks.census.cef_2020 import IDENTITY_COLUMNS
from spineflow.tasks.census.inputs import IngestResult
from spineflow.tasks.census.tables import IDENTITY
from spineflow.tasks.ledger.digests import InputDigest, input_digest


def input_digests(result: IngestResult, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises these people and housing units again."""
    geocode = result.geography["block_geocode"].to_numpy().astype(np.int64)
    persons = result.identity
    block = np.repeat(geocode, np.diff(persons.indptr))
    columns = (block, *np.divmod(persons.indices, IDENTITY.shape[1]), persons.data)
    digests = {
        "persons": input_digest("persons", dict(zip(IDENTITY_COLUMNS, columns, strict=True)), key)
    }
    if "units" in result.histograms:
        units = sparse.coo_array(result.histograms["units"])
        of_units = {"block_geocode": geocode[units.row], "cell": units.col, "units": units.data}
        digests["units"] = input_digest("units", of_units, key)
    return digests
