"""Households of a released population, in which every person in a household has the number of a
unit: read from the files `population_persons` and `population_units`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.census import preset_census
from ...census.households import HOUSEHOLDER, Members, unit_columns
from ...runs.errors import InputRefused
from ...tables.layouts import RACE_COLUMN
from .households import Households

PERSONS_FILE, UNITS_FILE = "population_persons.parquet", "population_units.parquet"
CENSUS, PERSONS = "dhc_persons_2020", "persons"
"""The census whose labels persons have."""
RELATED, RACE = "relgq", RACE_COLUMN.lower()
TENURES = {
    "owned with a mortgage": 1,
    "owned free and clear": 2,
    "rented": 3,
    "rented or without payment": 3,
    "occupied without payment": 4,
}
"""TEN by the labels of tenure."""
OTHERS = 36
"""The last RELSHIP in households."""


def read_population(folder: Path) -> tuple[Households, Members, pd.Series]:
    """Occupied units, their members, and the blocks of these units by their geocodes.

    What a household is follows from its members; tenure is the unit's. Raises InputRefused for
    files that are not there, that have other labels, or whose members and units do not fit.
    """
    units = _read(folder / UNITS_FILE, ("geocode", "unit", "tenure", "size"))
    persons = _read(
        folder / PERSONS_FILE, ("geocode", "unit", "relationship", "sex", "age", "hispanic", RACE)
    )
    units = units[units["tenure"].notna()].reset_index(drop=True)
    persons = persons[persons["unit"].notna()]
    index = pd.MultiIndex.from_arrays([units["geocode"], units["unit"].astype(np.int64)])
    keys = pd.MultiIndex.from_arrays([persons["geocode"], persons["unit"].astype(np.int64)])
    unit = index.get_indexer(keys) if index.is_unique else np.array([-1])
    size = np.bincount(unit[unit >= 0], minlength=len(units))
    if (unit < 0).any() or not np.array_equal(size, units["size"].to_numpy()):
        raise InputRefused(
            f"{folder}: persons and occupied units do not fit; name the release of a run whose "
            "persons and households agree."
        )
    codes = person_codes()
    found = [
        _coded(persons[name], codes[name], folder / PERSONS_FILE)
        for name in ("relationship", "age", "sex", "hispanic", RACE)
    ]
    members = Members(unit, *found)
    made = unit_columns(members, len(units))
    households = Households(
        _coded(units["tenure"], TENURES, folder / UNITS_FILE),
        kind=made["HHT"],
        detailed_kind=made["HHT2"],
        couple=made["CPLT"],
        race=made["HHRACE"],
        hispanic=made["HHSPAN"],
        key=np.arange(len(units), dtype=np.uint64),
    )
    return households, members, units["geocode"]


def person_codes() -> Mapping[str, Mapping[str, int]]:
    """The codes of the Census Edited File by label, of everything that households need."""
    schema = preset_census(CENSUS).schema(PERSONS)
    # A householder alone and one who is not are the first two levels.
    related = schema.labels(RELATED)
    relationships = {related[0]: HOUSEHOLDER, "householder": HOUSEHOLDER}
    last = OTHERS - HOUSEHOLDER + 1
    numbered = enumerate(related[1 : last + 1], start=HOUSEHOLDER)
    relationships |= {label: code for code, label in numbered}
    found = {"relationship": relationships, "age": {x: int(x) for x in schema.labels("age")}}
    for name in ("sex", "hispanic", RACE):
        found[name] = {label: n for n, label in enumerate(schema.labels(name), start=1)}
    return found


def _coded(labels: pd.Series, codes: Mapping[str, int], file: Path) -> np.ndarray:
    found = labels.astype(str).map(codes)
    if found.isna().any():
        raise InputRefused(f"{file}: {labels.name} has labels that are not of the 2020 Census.")
    return found.to_numpy(dtype=np.int64)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        return pq.read_table(path, columns=list(columns)).to_pandas()
    except FileNotFoundError:
        raise InputRefused(f"{path}: there is no such file; name a release's folder.") from None
    except (pa.ArrowException, OSError):
        raise InputRefused(f"{path}: this is no file of a population.") from None
