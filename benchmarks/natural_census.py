"""A census of natural size from another country: single years of age, education, nationality.

    .venv/bin/python -m benchmarks.natural_census [--cells 8880 71040] [--persons N] [--stages]
        [--set KEY=VALUE]

Persons of a country in municipalities and sections, with the attributes that every office has and
marginal queries that cross: no query asks for every cell. One command makes the release, with a
Prefect home of its own, after a run of a small census that is not counted and in which kernels are
compiled. Printed are the seconds of the clock and of the processor, Prefect's embedded server
included, the memory of all processes together, and the processor time of the longest stages.
Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from spineflow.tasks.runs.directory import Task

from benchmarks.state_time import taken

PERSONS, SECTIONS, MUNICIPALITIES = 17_008, 257, 12
FURTHER = {"seeing": 2, "hearing": 2, "walking": 2, "status": 10}
"""Levels of the attributes beside sex, age, nationality and education."""
N_FURTHER = {8_880: 0, 71_040: 3, 710_400: 4}
"""How many of these a schema of so many cells has."""
HEAD = """\
[census.geography]
table = "sections"
geolevels = ["country", "municipality", "section"]
[census.attributes]
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
age = { column = "age", bins = %(ages)s, largest = 110 }
nationality = { column = "nationality", levels = %(nationality)s }
education = { column = "education", levels = %(education)s }
"""
STAGES = {"child": (0, 18), "working": (18, 65), "old": (65, 111)}
"""A coarsening of age, by its first year and that after its last."""
TAIL = """\
[census.universes.persons]
table = "persons"
attributes = [%(names)s]
area = ["municipality", "section"]
invariants = [{ query = "total", geolevel = "country" }]
[input]
sections = "sections.csv"
persons = "persons.parquet"
[privacy]
dataset = "natural"
ledger = "ledger.db"
[geography]
spine = "conventional"
[budget.persons]
rho = "5/2"
delta = "1e-10"
[budget.persons.queries.other]
"""


def queries_of(further: list[str]) -> dict[str, str]:
    """Shares of the queries: margins that cross, none of which asks for every cell."""
    names = ["total", "age", "sex * nationality", "sex * education", "nationality * education"]
    if "walking" in further:
        names.append("seeing * hearing * walking")
    if "status" in further:
        names.append("sex * status")
    return dict.fromkeys(names, f"1/{len(names)}")


def write_census(
    folder: Path, n_cells: int, n_persons: int, n_sections: int, *, stages: bool = False
) -> None:
    """Sections, persons in them whose attributes depend on each other, and the settings; with
    `stages` one of the queries coarsens age."""
    rng = np.random.default_rng(1)
    further = list(FURTHER)[: N_FURTHER[n_cells]]
    n_municipalities = max(MUNICIPALITIES, n_sections // 40)
    municipality = np.sort(rng.integers(0, n_municipalities, n_sections))
    codes = {
        "municipality": [f"M{i}" for i in municipality],
        "section": [f"S{i}" for i in range(n_sections)],
    }
    pacsv.write_csv(pa.table(codes), folder / "sections.csv")
    section = rng.choice(n_sections, n_persons, p=rng.dirichlet(np.full(n_sections, 3.0)))
    age = np.minimum(rng.gamma(3.0, 14.0, n_persons).astype(np.int64), 110)
    nationality = np.where(rng.random(n_persons) < 0.85, 0, rng.integers(1, 5, n_persons))
    most = np.clip((age - 5) // 4, 0, 7)
    columns = {name: pa.array(np.array(texts)[section]) for name, texts in codes.items()} | {
        "sex": pa.array(rng.choice(["F", "M"], n_persons)),
        "age": pa.array(age),
        "nationality": pa.array(nationality.astype(str)),
        "education": pa.array(np.minimum(most, rng.poisson(3, n_persons)).astype(str)),
    }
    for name in further:
        levels = FURTHER[name]
        chance = np.clip((age - 30) / 150, 0.01, 0.6)
        drawn = rng.binomial(levels - 1, chance)
        columns[name] = pa.array(drawn.astype(str))
    pq.write_table(pa.table(columns), folder / "persons.parquet")
    (folder / "settings.toml").write_text(_settings(further, stages), encoding="utf-8")


def _settings(further: list[str], stages: bool) -> str:
    levels = {"nationality": 5, "education": 8} | {name: FURTHER[name] for name in further}
    text = {
        name: "{ " + ", ".join(f'"{i}" = ["{i}"]' for i in range(n)) + " }"
        for name, n in levels.items()
    }
    attributes = "".join(
        f'{name} = {{ column = "{name}", levels = {text[name]} }}\n' for name in further
    )
    names = ["sex", "age", "nationality", "education", *further]
    shares = "".join(f'"{name}" = "{share}"\n' for name, share in queries_of(further).items())
    head = HEAD % ({"ages": list(range(111))} | text)
    tail = TAIL % {"names": ", ".join(f'"{name}"' for name in names)} + shares
    if stages:
        ages = {name: [str(age) for age in range(*ends)] for name, ends in STAGES.items()}
        levels = ", ".join(f"{name} = {json.dumps(own)}" for name, own in ages.items())
        coarsening = f'[census.coarsenings.stage]\nattribute = "age"\nlevels = {{ {levels} }}\n'
        tail = coarsening + tail.replace("sex * education", "stage * sex * education")
    return head + attributes + tail


def seconds_by_stage(tasks: Iterable[Task]) -> Counter[str]:
    """Seconds of processor time of the tasks of a run, by their stage."""
    seconds: Counter[str] = Counter()
    for task in tasks:
        seconds[task.stage] += task.cpu
    return seconds


def main() -> None:
    """Time a run of a small census, then one of each size, and print these."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, nargs="*", default=[8_880, 71_040], choices=N_FURTHER)
    parser.add_argument("--persons", type=int, default=PERSONS)
    parser.add_argument("--sections", type=int, default=SECTIONS)
    parser.add_argument("--stages", action="store_true", help="have a query coarsen age")
    parser.add_argument("--keep", type=Path, help="keep the censuses and their runs in this folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = chosen.keep or Path(temporary)
        sizes = [(8_880, 300, 8), *((n, chosen.persons, chosen.sections) for n in chosen.cells)]
        for number, (n_cells, n_persons, n_sections) in enumerate(sizes):
            folder = root / f"{number}-{n_cells}"
            folder.mkdir(parents=True)
            write_census(folder, n_cells, n_persons, n_sections, stages=chosen.stages)
            run = taken(folder / "settings.toml", chosen.set, folder)
            if number:
                print(
                    f"{n_cells:>8,} cells, {n_persons:,} persons: {run.wall:6.1f} s by the clock, "
                    f"{run.cpu:6.1f} s of processor time, {run.memory / 1024:.2f} GiB"
                )
                for name, seconds in seconds_by_stage(run.tasks).most_common(8):
                    print(f"    {seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main()
