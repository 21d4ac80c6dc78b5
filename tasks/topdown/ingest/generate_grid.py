"""A generated European census on a grid: persons with coordinates, in municipalities and cells.

Cells of 1 km have the codes of the European grid (ETRS89-LAEA); municipalities (LAU) and NUTS
regions nest, and a cell on a border is in several municipalities. The counts are the topics of the
census of 2021 on the grid, by Regulation (EU) 2018/1799. The population is fictional.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

CELL = 1000
SQUARE = 250
"""Sides of a cell, and of the squares that municipalities are made of, in metres."""

WIDTH, HEIGHT = 40, 24
"""Extent of the country, in cells."""

WEST, SOUTH = 4_300_000, 2_700_000
"""The country's south-west corner."""

MUNICIPALITIES, REGIONS = 48, 6
"""Municipalities of the country, and its regions of NUTS 3; two of these make one of NUTS 2."""

PERSONS = 40_000

EU = ("AT", "BE", "CZ", "DE", "ES", "FR", "IT", "PL", "PT", "RO", "SE")
"""Countries of birth within the Union; the country's own is XX."""


def generate_grid(folder: Path, *, persons: int = PERSONS, seed: int = 2021) -> None:
    """Write `areas.csv`, the parts of municipalities in cells, and `persons.parquet`."""
    rng = np.random.default_rng(seed)
    per_cell = CELL // SQUARE
    x, y = np.meshgrid(np.arange(WIDTH * per_cell), np.arange(HEIGHT * per_cell), indexing="ij")
    squares = np.column_stack([x.ravel(), y.ravel()])
    towns = rng.uniform(0, [WIDTH * per_cell, HEIGHT * per_cell], (MUNICIPALITIES, 2))
    # From west to east, so that regions are of neighbours.
    towns = towns[np.argsort(towns[:, 0])]
    distances = np.linalg.norm(squares[:, None] - towns, axis=2)
    lau = distances.argmin(axis=1)
    cell_x, cell_y = (squares // per_cell).T
    cell = np.array(
        [
            f"CRS3035RES{CELL}mN{SOUTH + CELL * north}E{WEST + CELL * east}"
            for east, north in zip(cell_x, cell_y, strict=True)
        ]
    )
    # Intersections of municipalities and cells are public, whether inhabited or not.
    parts = sorted(set(zip(lau.tolist(), cell.tolist(), strict=True)))
    region = np.arange(MUNICIPALITIES) * REGIONS // MUNICIPALITIES
    areas = {
        "nuts2": [f"XX{1 + region[own] // 2:02}" for own, _ in parts],
        "nuts3": [f"XX{1 + region[own] // 2:02}{1 + region[own] % 2}" for own, _ in parts],
        "lau": [f"{10_000 + own}" for own, _ in parts],
        "cell": [code for _, code in parts],
    }
    pacsv.write_csv(pa.table(areas), folder / "areas.csv")

    # People live about the towns, a few anywhere.
    weight = rng.pareto(1.5, MUNICIPALITIES)[lau] * np.exp(-distances.min(axis=1) / 4) + 0.002
    home = rng.choice(len(squares), persons, p=weight / weight.sum())
    metres = squares[home] * SQUARE + rng.integers(0, SQUARE, (persons, 2))
    age = np.minimum((rng.beta(1.4, 1.7, persons) * 100).astype(np.int64), 104)
    is_of_age = (age >= 15) & (age < 70)
    born = rng.choice(["XX", "EU", "other"], persons, p=[0.84, 0.09, 0.07])
    columns = {
        "easting": WEST + metres[:, 0],
        "northing": SOUTH + metres[:, 1],
        "lau": [f"{10_000 + own}" for own in lau[home]],
        "sex": rng.choice(["F", "M"], persons, p=[0.51, 0.49]),
        "age": age,
        "work": np.where(is_of_age & (rng.random(persons) < 0.7), "employed", "other"),
        "born_in": np.where(born == "EU", rng.choice(EU, persons), born),
        "year_before": rng.choice(["here", "elsewhere", "abroad"], persons, p=[0.9, 0.08, 0.02]),
    }
    pq.write_table(pa.table(columns), folder / "persons.parquet")
