"""The tables of a whole release at once, counted from its microdata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from spineflow.tasks.census.microdata import count_microdata
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.topdown.release.tabulations import tables
from spineflow.tasks.topdown.release.tabulations.legacy import legacy_files, write_state


@dataclass(frozen=True)
class Tabulation:
    """A geography, and histograms of its blocks by the schema of each universe."""

    geography: pd.DataFrame
    counted: Mapping[Schema, sparse.csr_array]

    def tables(self, fips: str = "") -> list[tables.LevelTable]:
        """The tables of every summary level, or of those of one state."""
        here = self.geography["block_geocode"].str.startswith(fips).to_numpy()
        geography = self.geography[here].reset_index(drop=True)
        own = {schema: counts[np.flatnonzero(here)] for schema, counts in self.counted.items()}
        return tables.tabulate(geography, own)


def tabulate(directory: Path, geography: pd.DataFrame, universes: Sequence[str]) -> Tabulation:
    """Count the microdata of a release directory.

    `geography` is the geography frame, sorted by block_geocode; blocks without records are zeros.
    """
    block_geocode = geography["block_geocode"].to_numpy(dtype=object)
    counted = {}
    for universe in universes:
        file = directory / f"mdf_{universe}.parquet"
        histograms, schema = count_microdata(file, block_geocode, universe)
        counted[schema] = histograms
    return Tabulation(geography, counted)


def write_legacy(tabulation: Tabulation, directory: Path) -> list[Path]:
    """Write the P.L. 94-171 files of every state below `directory`; returns them."""
    states = sorted(set(tabulation.geography["block_geocode"].str[:2]))
    files = legacy_files(directory, states)
    for fips, of_fips in files.items():
        write_state(tabulation.tables(fips), of_fips)
    return [path for of_fips in files.values() for path in of_fips]
