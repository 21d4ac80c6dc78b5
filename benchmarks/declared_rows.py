"""How long a declared census of ten million rows with counts takes from its table to its release.

    .venv/bin/python -m benchmarks.declared_rows

A table has a row for so many people of some sex and age in some area, ten million rows in all, and
the codes of four geolevels below the root are texts: 8 provinces, 160 districts, 1,600
municipalities and 8,000 areas. One command makes the release of its counts, with a Prefect home of
its own, after a run of a small table that is not counted and in which kernels are compiled. The
seconds are those of the clock and of the processor, Prefect's embedded server included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from spineflow.flows.ledger import WrittenCaps, init_ledger

ROWS, SMALL = 10_000_000, 20_000
PROVINCES, DISTRICTS, MUNICIPALITIES, AREAS = 8, 20, 10, 5
COMMAND = (
    "import sys; from spineflow.flows.cli import main; "
    "sys.exit(main(['run', 'topdown', 'settings.toml', '--run-dir', 'run']))"
)
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
people = "people.parquet"
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


def write_census(folder: Path, n_rows: int) -> None:
    """Areas, and a table of `n_rows` rows of people in them."""
    rng = np.random.default_rng(1)
    n_areas = PROVINCES * DISTRICTS * MUNICIPALITIES * AREAS
    number = np.arange(n_areas)
    codes = {
        "province": [f"Prov-{i}" for i in number // (n_areas // PROVINCES)],
        "district": [f"d{i:X}" for i in number // (MUNICIPALITIES * AREAS) % DISTRICTS],
        "municipality": [f"Gemeinde {i}" for i in number // AREAS % MUNICIPALITIES],
        "area": [f"{i}é" for i in number % AREAS],
    }
    pacsv.write_csv(pa.table(codes), folder / "areas.csv")
    area = rng.integers(0, n_areas, n_rows)
    columns = {
        name: pa.DictionaryArray.from_arrays(pa.array(area.astype(np.int32)), pa.array(texts))
        for name, texts in codes.items()
    }
    columns = {name: column.cast(pa.string()) for name, column in columns.items()}
    columns["sex"] = pa.array(rng.choice(["F", "M"], n_rows))
    columns["age"] = pa.array(rng.integers(0, 100, n_rows))
    columns["n"] = pa.array(1 + rng.poisson(2, n_rows))
    pq.write_table(pa.table(columns), folder / "people.parquet")
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")


def timed_run(folder: Path) -> tuple[float, float, float]:
    """Seconds of the clock and of the processor that a run of the settings in a folder takes, and
    GiB of the largest process up to now.

    The list of ledgers is in the folder, since runs of several sizes may have the same persons.
    """
    init_ledger(folder / "ledger.db", WrittenCaps(), is_listed=False)
    own = {"PREFECT_HOME": str(folder / "prefect"), "SPINEFLOW_LEDGERS": str(folder / "ledgers")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", COMMAND],
        cwd=folder,
        env=os.environ | own,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 2**20


def main() -> None:
    """Time a run of a small table, then one of all rows, and print the second."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name, n_rows in (("small", SMALL), ("all", chosen.rows)):
            folder = Path(temporary) / name
            folder.mkdir()
            write_census(folder, n_rows)
            wall, cpu, _ = timed_run(folder)
            print(f"{n_rows:>12,} rows: {wall:6.1f} s by the clock, {cpu:6.1f} s of processor time")


if __name__ == "__main__":
    main()
