"""Regions of blocks, areas, and the cells of the sex by age tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from spineflow.tasks.detailed_groups.workload.regions import (
    BLOCK_COLUMNS,
    NO_REGION,
    REGION_TYPES,
    areas_of,
    region_domain,
    region_types,
)
from spineflow.tasks.detailed_groups.workload.tabulations import (
    AGE_BINS,
    N_CELLS,
    cells_of_table,
    finest_cell,
)

BLOCKS = pd.DataFrame(
    [
        ("02", "001", "000100", "10000", "9999"),
        ("01", "001", "000100", "10000", "0001"),
        ("72", "001", "000100", "10000", "0001"),
        ("01", "001", "000100", "99999", "9999"),
        ("02", "001", "000100", "10000", "9999"),
        ("01", "003", "000100", "10000", "0001"),
        ("02", "003", "000100", "99999", "0001"),
    ],
    columns=list(BLOCK_COLUMNS),
)


def test_areas_are_ascending_and_hold_every_block() -> None:
    area, areas = areas_of(BLOCKS)
    assert len(areas) == 6
    assert areas.equals(areas.sort_values(list(BLOCK_COLUMNS), ignore_index=True))
    assert areas.iloc[area].reset_index(drop=True).equals(BLOCKS)


def test_region_ids_are_those_of_the_production_program() -> None:
    _, areas = areas_of(BLOCKS)
    ids = {name: region_domain(name, areas).ids.tolist() for name in REGION_TYPES}
    assert ids == {
        "USA": ["1"],
        "STATE": ["01", "02"],
        "COUNTY": ["01001", "01003", "02001", "02003"],
        "TRACT": ["01001000100", "01003000100", "02001000100", "02003000100"],
        "PLACE": ["0110000", "0210000"],
        "AIANNH": ["0001"],
        "PR-STATE": ["72"],
        "PR-COUNTY": ["72001"],
        "PR-TRACT": ["72001000100"],
        "PR-PLACE": ["7210000"],
    }


def test_an_aiannh_area_crosses_states_and_blocks_outside_have_none() -> None:
    area, areas = areas_of(BLOCKS)
    domain = region_domain("AIANNH", areas)
    assert domain.region_of_area[area].tolist() == [
        NO_REGION,
        0,
        NO_REGION,
        NO_REGION,
        NO_REGION,
        0,
        0,
    ]


def test_passes_have_their_own_region_types() -> None:
    assert [kind.name for kind in region_types("pr")] == [
        "PR-STATE",
        "PR-COUNTY",
        "PR-TRACT",
        "PR-PLACE",
    ]
    assert {kind.name for kind in region_types("us")} == set(REGION_TYPES) - {
        kind.name for kind in region_types("pr")
    }
    detailed = [kind.name for kind in REGION_TYPES.values() if kind.granularity == "detailed"]
    assert detailed == ["USA", "STATE", "PR-STATE"]


def test_every_age_falls_into_one_bin_of_each_table() -> None:
    ages = np.arange(116)
    for sex in (0, 1):
        finest = finest_cell(np.full(116, sex), ages)
        for table, bins in AGE_BINS.items():
            by_table = cells_of_table(table)[finest]
            expected = [sex * len(bins) + sum(start <= age for start in bins) - 1 for age in ages]
            assert by_table.tolist() == expected
            assert by_table.max() < N_CELLS[table]
    assert not cells_of_table(0).any()
