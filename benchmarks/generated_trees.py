"""Generated origin/destination tables of the kinds that [InfTDA2024] evaluates on.

Two partitions: *binary*, eight levels in which every area is cut in two, and *random*, four levels
in which every area is cut into two to ten. Three densities: of all pairs of finest areas, all have
trips (*complete*), half (*dense*), or one in a hundred (*sparse*). Flows are drawn from a Pareto
distribution and rounded; their means are those of the paper's table 1, and their quantiles those of
the two tables that the authors have published. Nobody's data are in them.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTITIONS = ("binary", "random")
DENSITIES = {"complete": 1.0, "dense": 0.5, "sparse": 0.01}

BINARY_LEVELS, RANDOM_LEVELS = 8, 4
FEWEST, MOST = 2, 10
"""Areas that an area of the random partition is cut into."""
RANDOM_AREAS = 435
"""Finest areas of the random partition: those of the authors' published tables."""

PARETO_EXPONENT = 3.0
LARGEST_FLOW = 1_000
MEAN_FLOWS = {
    "binary": {"complete": 1_051_271 / 65_536, "dense": 734_688 / 32_768, "sparse": 23_302 / 655},
    "random": {
        "complete": 2_019_580 / 189_225,
        "dense": 1_003_943 / 95_612,
        "sparse": 67_840 / 1_892,
    },
}
"""Trips for each pair that has any."""

SETTINGS = """\
[input]
trips = "trips.parquet"
origin = "origin"
destination = "destination"
count = "count"
areas = "areas.csv"
confidential = false

[privacy]
dataset = "{partition}-{density}"
epsilon = "1"
delta = "1e-8"
"""


def generate_tree(
    folder: Path, partition: str, density: str, *, seed: int = 0, areas: int = RANDOM_AREAS
) -> Path:
    """Write `trips.parquet`, `areas.csv` and `settings.toml` into a folder; returns the settings.

    Args:
        folder: made if it does not exist.
        partition, density: one of `PARTITIONS`, and of `DENSITIES`.
        seed: the same seed gives the same table.
        areas: about how many finest areas the random partition has; seeds are tried for it.
    """
    random = np.random.default_rng(seed)
    parents = _binary() if partition == "binary" else _random(random, areas)
    folder.mkdir(parents=True, exist_ok=True)
    _write_areas(folder / "areas.csv", parents)
    n = parents[-1].size
    n_pairs = round(n * n * DENSITIES[density])
    pairs = np.sort(random.choice(n * n, size=n_pairs, replace=False))
    # Rounding up adds a half; a Pareto variable from 0 has a mean of one over its exponent less 1.
    scale = (MEAN_FLOWS[partition][density] - 0.5) * (PARETO_EXPONENT - 1)
    flow = np.ceil(scale * random.pareto(PARETO_EXPONENT, n_pairs))
    flow = np.clip(flow, 1, LARGEST_FLOW)
    codes = np.array([_code(len(parents), i) for i in range(n)])
    table = pa.table(
        {
            "origin": pa.array(codes[pairs // n]),
            "destination": pa.array(codes[pairs % n]),
            "count": pa.array(flow.astype(np.int64)),
        }
    )
    pq.write_table(table, folder / "trips.parquet", compression="zstd")
    settings = folder / "settings.toml"
    settings.write_text(SETTINGS.format(partition=partition, density=density), encoding="utf-8")
    return settings


def _binary() -> list[np.ndarray]:
    """For each level the area above of every area; the first has none above but the root."""
    return [np.arange(2**level) // 2 for level in range(1, BINARY_LEVELS + 1)]


def _random(random: np.random.Generator, areas: int) -> list[np.ndarray]:
    """The same with areas cut at random; the nearest of a hundred draws to the number asked for."""

    def drawn() -> list[np.ndarray]:
        parents, n = [], 1
        for _ in range(RANDOM_LEVELS):
            parents.append(np.repeat(np.arange(n), random.integers(FEWEST, MOST + 1, n)))
            n = parents[-1].size
        return parents

    return min((drawn() for _ in range(100)), key=lambda found: abs(found[-1].size - areas))


def _write_areas(path: Path, parents: list[np.ndarray]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("level", "area", "parent"))
        for level, above in enumerate(parents, start=1):
            for area, parent in enumerate(above.tolist()):
                writer.writerow(
                    (f"level {level}", _code(level, area), _code(level - 1, parent) * (level > 1))
                )


def _code(level: int, area: int) -> str:
    return f"{level}-{area:04d}"
