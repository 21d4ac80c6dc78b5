"""Invariants: the exact counts of the release.

These are each state's total population, and each block's housing units and occupied
group-quarters facilities by type. They are public by declaration.

Levels of the block geocode, and further facts of a geography table about the region of a block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ...geography.hierarchy import CONVENTIONAL_DIGITS
from ..runs.errors import InputRefused
from ..runs.files import replacing
from ..runs.names import is_file_name
from .cef_2020 import N_TYPES

FACILITY_COLUMNS = tuple(f"facilities_{number}" for number in range(1, N_TYPES))
"""Columns of the invariants frame with the facilities of each group-quarters type."""
N_KINDS = 2 + len(FACILITY_COLUMNS)
"""Kinds of units: vacant and occupied housing units, and the types of facilities."""


def block_invariants(block_geocode: pd.Series, units: sparse.csr_array) -> pd.DataFrame:
    """The invariants frame: one row for every block, in the order of `block_geocode`.

    `units` are the units by block and kind, shape `(n_blocks, N_KINDS)`. Columns: block_geocode,
    housing_units, facilities_1 to facilities_7 (int64).
    """
    counts = units.toarray()
    facilities = dict(zip(FACILITY_COLUMNS, counts[:, 2:].T, strict=True))
    columns = {"block_geocode": block_geocode, "housing_units": counts[:, :2].sum(axis=1)}
    return pd.DataFrame(columns | facilities)


def state_totals(block_geocode: pd.Series, population: np.ndarray) -> dict[str, int]:
    """Population of every state by FIPS code, from the population of every block.

    >>> state_totals(pd.Series(["4400" + 12 * "0", "4401" + 12 * "0"]), np.array([3, 4]))
    {'44': 7}
    """
    totals = pd.Series(population).groupby(block_geocode.str[:2].to_numpy()).sum()
    return {str(state): int(total) for state, total in totals.items()}


def inhabitable(invariants: pd.DataFrame) -> np.ndarray:
    """Mask of the inhabitable blocks: with a housing unit or a facility."""
    return invariants[["housing_units", *FACILITY_COLUMNS]].to_numpy().any(axis=1)


def read_inhabitable(geography: Path, invariants: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both frames of inhabitable blocks, from the files; see `inhabitable`.

    Memory is that of these rows and of one file.
    """
    counts = pq.read_table(invariants, columns=["housing_units", *FACILITY_COLUMNS])
    used = np.zeros(len(counts), dtype=bool)
    for column in counts.columns:
        used |= column.to_numpy() != 0
    rows = pa.array(used)
    counts = counts.filter(rows).to_pandas()
    return pq.read_table(geography).filter(rows).to_pandas(), counts


def read_invariants(path: Path) -> pd.DataFrame:
    """The invariants frame that an ingest wrote."""
    return pq.read_table(path).to_pandas()


def write_state_totals(path: Path, totals: Mapping[str, Any]) -> None:
    """Write the state totals, or those of a declared census, as a JSON object, atomically."""
    with replacing(path) as part:
        # The bytes decide digests that are charged: a run of an earlier version has the same.
        is_nested = any(isinstance(entry, Mapping) for entry in totals.values())
        text = json.dumps(dict(totals), indent=1 if is_nested else 2, default=np.ndarray.tolist)
        part.write_text(text + "\n", encoding="utf-8")


def read_state_totals(path: Path) -> dict[str, int]:
    """Read a file of `write_state_totals`."""
    return {state: int(total) for state, total in json.loads(Path(path).read_text()).items()}


def read_geography(path: Path) -> pd.DataFrame:
    """The geography frame that an ingest wrote."""
    return pq.read_table(path).to_pandas()


NATION = "US"
GEOCODE_DIGITS = {NATION: 0, **CONVENTIONAL_DIGITS}
"""Levels of the block geocode, by the digits of it that name a region."""


def codes_of_level(geography: pd.DataFrame, name: str, file: str = "geography") -> pd.Series:
    """The region of every block of a geography frame at a level, as text.

    A level is one of `GEOCODE_DIGITS`, where the nation's code is 0, or a column of the frame.
    Raises InputRefused, naming `file`, for a name that is neither.
    """
    if name in GEOCODE_DIGITS:
        digits = GEOCODE_DIGITS[name]
        geocode = geography["block_geocode"].astype(str)
        return geocode.str[:digits] if digits else pd.Series("0", index=geography.index)
    if name in geography.columns and is_file_name(name):
        return geography[name].astype(str)
    known = [*GEOCODE_DIGITS, *(c for c in geography.columns if c != "block_geocode")]
    raise InputRefused(
        f"{file}: geography.levels names {name!r}, but there are {', '.join(known)}."
    )
