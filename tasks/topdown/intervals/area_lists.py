"""Areas that somebody asks about, by name: lists of blocks, geounits of a spine, and pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.levels import Spine
from ...runs.errors import InputRefused
from .areas import BlockAreas


@dataclass(frozen=True, eq=False)
class NamedAreas:
    """Names (n_areas,) and the blocks of each."""

    names: np.ndarray
    blocks: BlockAreas

    @classmethod
    def listed(cls, areas: pd.DataFrame, block_geocode: np.ndarray) -> NamedAreas:
        """From a table with the columns `area` and `block`. Blocks that are not on the spine can
        hold nobody, and count as none.

        Raises InputRefused if no block of the list is on the spine.
        """
        names, number = np.unique(areas["area"].to_numpy(dtype=object), return_inverse=True)
        block = pd.Index(block_geocode).get_indexer(areas["block"])
        if not (block >= 0).any():
            raise InputRefused(
                "None of the blocks that the areas list is on the run's spine; blocks are given by "
                "the 16 digits of state, county, tract, block group and block."
            )
        return cls(names, BlockAreas.of_pairs(len(names), block, number.reshape(-1)))

    @classmethod
    def of_geolevel(cls, spine: Spine, geolevel: str) -> NamedAreas:
        """The geounits of a geolevel."""
        geocode = spine.geolevel(geolevel).geocode
        geounit = spine.ancestors(geolevel)
        return cls(geocode, BlockAreas.of_pairs(len(geocode), np.arange(len(geounit)), geounit))

    def numbers(self, names: pd.Series, file: Path) -> np.ndarray:
        """Numbers of areas by name; InputRefused for one that `file` names and that is unknown."""
        number = pd.Index(self.names).get_indexer(names)
        if (number < 0).any():
            unknown = names[number < 0].iloc[0]
            raise InputRefused(
                f"{file} names {unknown!r}, which is none of the areas or geounits that are "
                "compared; write names as the list of areas, or the geolevel, has them."
            )
        return number


def read_areas(path: Path) -> pd.DataFrame:
    """Areas as lists of blocks, from CSV or Parquet with the columns `area` and `block`."""
    return _read(
        path,
        ("area", "block"),
        "an area is the rows with its name in 'area', each with the 16 digits of a block in "
        "'block'",
    )


def read_pairs(path: Path) -> pd.DataFrame:
    """What is compared with what, from CSV or Parquet with the columns `first` and `second`."""
    return _read(
        path,
        ("first", "second"),
        "each row names two areas or geounits that are compared, in 'first' and 'second'",
    )


def _read(path: Path, columns: tuple[str, str], meaning: str) -> pd.DataFrame:
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise InputRefused(f"{path} cannot be read: {type(error).__name__}.") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputRefused(f"{path} has no column {missing[0]!r}; {meaning}.")
    return table[list(columns)].astype(str).drop_duplicates().reset_index(drop=True)
