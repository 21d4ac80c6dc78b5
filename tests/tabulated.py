"""The tables of a whole release at once, counted from its microdata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from spineflow.tasks.census.microdata import count_microdata
from spineflow.tasks.topdown.release.tabulations.legacy import legacy_files, write_state
from spineflow.tasks.topdown.release.tabulations.levels import variable_matrix, variables_of
from spineflow.tasks.topdown.release.tabulations.tables import Tabulation


def tabulate(directory: Path, geography: pd.DataFrame, universes: Sequence[str]) -> Tabulation:
    """Count the microdata of a release directory.

    `geography` is the geography frame, sorted by block_geocode; blocks without records are zeros.
    """
    block_geocode = geography["block_geocode"].to_numpy(dtype=object)
    counted = [
        count_microdata(directory / f"mdf_{universe}.parquet", block_geocode, universe)
        for universe in universes
    ]
    return Tabulation(
        geography,
        tuple(name for _, schema in counted for name in variables_of(schema)),
        tuple(histogram for histogram, _ in counted),
        tuple(variable_matrix(schema) for _, schema in counted),
    )


def write_legacy(tabulation: Tabulation, directory: Path, *, is_private: bool = True) -> list[Path]:
    """Write the P.L. 94-171 files of every state below `directory`; returns them."""
    state_of_block = tabulation.geography["block_geocode"].str[:2]
    states = sorted(set(state_of_block))
    files = legacy_files(directory, states, is_private=is_private)
    for fips, of_fips in files.items():
        here = np.flatnonzero(state_of_block == fips)
        of_state = replace(
            tabulation,
            geography=tabulation.geography.iloc[here].reset_index(drop=True),
            histograms=tuple(histogram[here] for histogram in tabulation.histograms),
        )
        write_state(of_state, fips, of_fips)
    return [path for of_fips in files.values() for path in of_fips]
