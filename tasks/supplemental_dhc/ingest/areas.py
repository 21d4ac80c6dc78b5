"""The areas of a run: blocks in the same regions of every level, and these regions; public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ...census.invariants import GEOCODE_DIGITS, codes_of_level
from ...runs.stamps import write_parquet


@dataclass(frozen=True, eq=False)
class Areas:
    """The regions of areas, by level in the order of the settings.

    regions : codes of the regions of every level, ascending.
    region_of_area : by level, the position of every area's region, `(n_areas,)`; -1 for
        none.
    """

    regions: dict[str, np.ndarray]
    region_of_area: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.region_of_area.values())))

    @property
    def names(self) -> np.ndarray:
        """Names of the areas in files, ascending."""
        return np.array([f"{number:08d}" for number in range(len(self))], dtype=object)

    @property
    def n_regions(self) -> dict[str, int]:
        """The number of regions of every level."""
        return {name: len(own) for name, own in self.regions.items()}

    def summed(self, level: str, counts: np.ndarray) -> np.ndarray:
        """Counts of the regions of a level `(n_regions, n)`, from those of areas `(n_areas, n)`."""
        region = self.region_of_area[level]
        is_inside = region >= 0
        found = np.zeros((len(self.regions[level]), counts.shape[1]), dtype=np.int64)
        np.add.at(found, region[is_inside], counts[is_inside])
        return found


def areas_of(
    geography: pd.DataFrame, levels: Sequence[str], file: str = "geography"
) -> tuple[Areas, np.ndarray]:
    """The areas of a geography frame, and the area of every block.

    Codes of a column that stand in several states are told apart by the state's code and a hyphen
    before them. Raises InputRefused as `codes_of_level`.
    """
    state = codes_of_level(geography, "State")
    columns: dict[str, pd.Series] = {}
    for name in levels:
        code = codes_of_level(geography, name, file)
        if name not in GEOCODE_DIGITS:
            is_blank = geography[name].isna() | (code.str.strip() == "")
            states = pd.DataFrame({"code": code, "state": state})[~is_blank].drop_duplicates()
            if states["code"].duplicated().any():
                code = state + "-" + code
            code = code.mask(is_blank, None)
        columns[name] = code
    frame = pd.DataFrame(columns).astype(object).fillna("")
    area = frame.groupby(list(levels)).ngroup().to_numpy(np.int64)
    distinct = frame.drop_duplicates().sort_values(list(levels))
    return areas_of_rows(distinct.mask(distinct == "", None)), area


def write_areas(path: Path, areas: Areas) -> None:
    """Write one row an area, with its regions by level; null where it lies in none."""
    columns = {
        name: pa.array([*areas.regions[name], None], pa.string()).take(
            pa.array(region % (len(areas.regions[name]) + 1))
        )
        for name, region in areas.region_of_area.items()
    }
    write_parquet(path, pa.table(columns))


def areas_of_rows(distinct: pd.DataFrame) -> Areas:
    """The areas of one row an area, with its regions by level; blank where it lies in none."""
    regions, of_area = {}, {}
    for name in distinct:
        # What lies in none has the code -1.
        codes, found = pd.factorize(distinct[name], sort=True)
        regions[str(name)] = np.asarray(found, dtype=object)
        of_area[str(name)] = codes.astype(np.int64)
    return Areas(regions, of_area)
