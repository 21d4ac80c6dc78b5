"""How long a declared census takes from its table of rows with counts to its release.

    .venv/bin/python -m benchmarks.declared_rows
    .venv/bin/python -m benchmarks.declared_rows --rows 30000000 --partitions 40 --areas 300000

A table has a row for so many people of some sex and age in some area, ten million rows in all, or
`--rows`, in one Parquet file, or a folder of so many `--partitions`. The codes of four geolevels
below the root are texts: a province has 20 districts of 10 municipalities of 5 areas, and of 8,000
areas, or `--areas`, there are 8 provinces. One command makes the release of its counts, after a run
of a small table that is not counted and in which kernels are compiled. Printed is what
`benchmarks/state_time.py` tells of a run: seconds of the clock and of the processor, Prefect's
embedded server included, by stage, and the memory of all processes. Needs Linux.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.state_time import print_stages, taken

DISTRICTS, MUNICIPALITIES, AREAS = 20, 10, 5
"""Districts of a province, municipalities of a district, areas of a municipality."""
IN_PROVINCE = DISTRICTS * MUNICIPALITIES * AREAS
SETTINGS = """\
[census.geography]
table = "areas"
geolevels = ["country", "province", "district", "municipality", "area"]
[census.attributes]
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
age = { column = "age", bins = [0, 5, 15, 18, 25, 40, 65, 80], largest = 110 }
[census.universes.people]
table = "people"
attributes = ["sex", "age"]
area = ["province", "district", "municipality", "area"]
count = "n"
invariants = [{ query = "total", geolevel = "province" }]
[input]
areas = "areas.csv"
people = "%(people)s"
[privacy]
dataset = "rows"
ledger = "ledger.db"
[geography]
spine = "conventional"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other = { total = "1/2", detailed = "1/2" }
"""


@dataclass(frozen=True)
class Sizes:
    """Rows of people, the files that they lie in, and areas: a multiple of those of a province."""

    rows: int = 10_000_000
    partitions: int = 1
    areas: int = 8 * IN_PROVINCE

    def __post_init__(self) -> None:
        if self.areas < IN_PROVINCE or self.areas % IN_PROVINCE:
            raise ValueError(f"areas must be a multiple of {IN_PROVINCE:,}, not {self.areas:,}")
        if not 1 <= self.partitions <= self.rows:
            raise ValueError(f"{self.rows:,} rows cannot lie in {self.partitions:,} partitions")


SMALL = Sizes(20_000)


def write_census(folder: Path, sizes: Sizes) -> Path:
    """Write areas, a table of people in them and settings, whose path is returned.

    Of rows, only those of a partition are in memory at once.
    """
    rng = np.random.default_rng(1)
    number = np.arange(sizes.areas)
    codes = {
        "province": [f"Prov-{i}" for i in number // IN_PROVINCE],
        "district": [f"d{i:X}" for i in number // (MUNICIPALITIES * AREAS) % DISTRICTS],
        "municipality": [f"Gemeinde {i}" for i in number // AREAS % MUNICIPALITIES],
        "area": [f"{i}é" for i in number % AREAS],
    }
    pacsv.write_csv(pa.table(codes), folder / "areas.csv")
    texts = {name: pa.array(values) for name, values in codes.items()}
    people = "people.parquet" if sizes.partitions == 1 else "people"
    if sizes.partitions > 1:
        (folder / people).mkdir()
    for part in range(sizes.partitions):
        n_rows = sizes.rows * (part + 1) // sizes.partitions - sizes.rows * part // sizes.partitions
        file = folder / people if sizes.partitions == 1 else folder / people / f"{part:03d}.parquet"
        pq.write_table(_people(rng, texts, n_rows), file)
    settings = folder / "settings.toml"
    settings.write_text(SETTINGS % {"people": people}, encoding="utf-8")
    return settings


def _people(rng: np.random.Generator, texts: Mapping[str, pa.Array], n_rows: int) -> pa.Table:
    """Rows of people in areas whose codes by geolevel are `texts`."""
    area = pa.array(rng.integers(0, len(texts["area"]), n_rows))
    columns = {name: codes.take(area) for name, codes in texts.items()}
    columns["sex"] = pa.array(rng.choice(["F", "M"], n_rows))
    columns["age"] = pa.array(rng.integers(0, 100, n_rows))
    columns["n"] = pa.array(1 + rng.poisson(2, n_rows))
    return pa.table(columns)


def main() -> None:
    """Run a small table, then one of the sizes that are asked for, and print its stages."""
    default = Sizes()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=default.rows, help="rows of the table")
    parser.add_argument("--partitions", type=int, default=default.partitions, help="its files")
    parser.add_argument("--areas", type=int, default=default.areas, help="finest areas")
    parser.add_argument("--keep", type=Path, help="keep the census and its run in this folder")
    chosen = parser.parse_args()
    try:
        sizes = Sizes(chosen.rows, chosen.partitions, chosen.areas)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="spineflow-rows-") as temporary:
        root = chosen.keep or Path(temporary)
        for name, own in (("small", SMALL), ("all", sizes)):
            folder = root / name
            folder.mkdir(parents=True)
            run = taken(write_census(folder, own), (), folder)
        print_stages(run)


if __name__ == "__main__":
    main()
