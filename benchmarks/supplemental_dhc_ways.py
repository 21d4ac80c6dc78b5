"""PH1 to PH8 measured by themselves, and summed over one released population, beside each other.

    .venv/bin/python -m benchmarks.supplemental_dhc_ways INPUT POPULATION [POPULATION ...]
    .venv/bin/python -m benchmarks.supplemental_dhc_ways FOLDER [--persons 3000 --seeds 3]

INPUT is a folder with census tables that may be disclosed, whose households fit together;
POPULATION are releases of it with `population_persons.parquet` and `population_units.parquet`, made
with different seeds. The supplemental tables are measured once for every one of them, with the
budgets of the 2020 production run. Printed are, by table and kind of iteration, the root mean
square error of the rows of the state, of both ways.

The second line generates a county and its populations in a folder, as far as they are not there.
Both ways spend the same: households of the housing product have what the supplemental tables cost
beside their own budget.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from spineflow.flows.demo import DEMOS
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.products.product import PRESETS, product
from spineflow.tasks.supplemental_dhc.estimation import rows_of_population
from spineflow.tasks.supplemental_dhc.release import released_rows
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from .nation_run import COMMAND, REPOSITORY

KEYS = ["table", "region", "iteration", "cell"]
KINDS = {"*": "all", "H": "origin", "I": "origin"}
LEVEL = "State"


def main() -> None:
    """Measure, sum, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("populations", type=Path, nargs="*")
    parser.add_argument("--persons", type=int, default=3000, help="of a generated county")
    parser.add_argument("--seeds", type=int, default=3, help="of populations of it")
    options = parser.parse_args()
    source, populations = options.input, options.populations
    if not populations:
        folder = source.resolve()
        source = folder / "input"
        populations = generated(folder, options.persons, options.seeds)
    truth = measured(source, "infinite = true\n")["estimate"]
    ways = {
        "measured": [
            measured(source, f"seed = {seed}\n")["estimate"]
            for seed in range(1, len(populations) + 1)
        ],
        "one population": [
            indexed(rows_of_population(folder, [LEVEL]))["estimate"] for folder in populations
        ],
    }
    errors = {name: root_mean_square(found, truth) for name, found in ways.items()}
    shown = pd.DataFrame(errors).round(4)
    print("| table | iterations | measured | one population |", "|---|---|---:|---:|", sep="\n")
    for (table, kind), row in shown.iterrows():
        print(f"| {table} | {kind} | {row['measured']:g} | {row['one population']:g} |")


def generated(folder: Path, persons: int, seeds: int) -> list[Path]:
    """Releases of one population of a generated county, at the budget of both ways together."""
    if not (folder / "input").exists():
        with TemporaryDirectory() as raw:
            generate_county(raw, persons=persons, seed=20)
            synthesize_households(raw, folder / "input", seed=20)
    releases = []
    for seed in range(1, seeds + 1):
        run = folder / f"run{seed}"
        releases.append(run / "release")
        if releases[-1].exists():
            continue
        settings = folder / f"s{seed}.toml"
        text = (DEMOS / "households.toml").read_text(encoding="utf-8")
        settings.write_text(text.replace('ledger = "ledger.db"', f"seed = {seed}"))
        rho = f'products.dhc-units.budget.households.rho="{rho_of_households()}"'
        subprocess.run(
            [
                *(sys.executable, "-c", COMMAND, "run", "products", str(settings)),
                *("--run-dir", str(run), "--set", rho),
            ],
            check=True,
            cwd=REPOSITORY,
            env=os.environ | {"PREFECT_HOME": str(folder / "prefect")},
            stdout=sys.stderr,
        )
    return releases


def rho_of_households() -> Fraction:
    """What households of the housing product and the supplemental tables have in production."""
    own, other = (
        tomllib.loads((PRESETS / f"{name}_2020_us.toml").read_text(encoding="utf-8"))
        for name in ("dhc_units", "supplemental_dhc")
    )
    spent = (
        Fraction(rho)
        for levels in other["mechanism"]["budgets"].values()
        for keys in levels.values()
        for rho in keys.values()
    )
    return sum(spent, Fraction(own["budget"]["households"]["rho"]))


def measured(folder: Path, privacy: str) -> pd.DataFrame:
    """The rows of the state, measured in a run of their own; nobody is left out without noise."""
    with TemporaryDirectory() as own:
        taus = "".join(f"{name} = 999\n" for name in ("PH1_num", "PH2", "PH3", "PH4", "PH6", "PH7"))
        truncation = f"[mechanism.truncation]\n{taus}" if "infinite" in privacy else ""
        settings_file = Path(own) / "settings.toml"
        settings_file.write_text(
            'preset = "supplemental_dhc_2020_us"\n[input]\n'
            f'persons = "{folder.resolve()}/persons.parquet"\n'
            f'units = "{folder.resolve()}/units.parquet"\n'
            f'geography = "{folder.resolve()}/grfc.txt"\nconfidential = false\n'
            f'[privacy]\ndataset = "ways"\n{privacy}{truncation}'
        )
        flow = product("supplemental-dhc")
        settings = flow.load(settings_file)
        run = prepare(settings, Path(own) / "run")
        call_stages(run, settings)
        return indexed(released_rows(run).to_pandas())


def indexed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the state by what they are of."""
    return rows[rows["level"] == LEVEL].set_index(KEYS)


def root_mean_square(found: list[pd.Series], truth: pd.Series) -> pd.Series:
    """Root mean square error by table and kind of iteration, over rows and seeds.

    Rows over no household, in the truth or in what was found, are left out.
    """
    squares = pd.concat([(own.reindex(truth.index) - truth) ** 2 for own in found]).dropna()
    kinds = squares.index.get_level_values("iteration").map(lambda code: KINDS.get(code, "race"))
    tables = squares.index.get_level_values("table")
    return np.sqrt(squares.groupby([tables, kinds]).mean())


if __name__ == "__main__":
    main()
