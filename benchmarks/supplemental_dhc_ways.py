"""PH1 to PH8 measured by themselves, and summed over one released population, beside each other.

    .venv/bin/python -m benchmarks.supplemental_dhc_ways INPUT POPULATION [POPULATION ...]

INPUT is a folder with census tables that may be disclosed, whose households fit together;
POPULATION are releases of it with `population_persons.parquet` and `population_units.parquet`, made
with different seeds. The supplemental tables are measured once for every one of them, with the
budgets of the 2020 production run. Printed are, by table and kind of iteration, the root mean
square error of the rows of the state, of both ways.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from spineflow.flows.order import called
from spineflow.flows.running import prepare
from spineflow.tasks.products.registry import product
from spineflow.tasks.supplemental_dhc.estimation.population import rows_of_population
from spineflow.tasks.supplemental_dhc.release.tables import released_rows

KEYS = ["table", "region", "iteration", "cell"]
KINDS = {"*": "all", "H": "origin", "I": "origin"}
LEVEL = "State"


def main() -> None:
    """Measure, sum, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("populations", type=Path, nargs="+")
    options = parser.parse_args()
    truth = measured(options.input, "infinite = true\n")["estimate"]
    ways = {
        "measured": [
            measured(options.input, f"seed = {seed}\n")["estimate"]
            for seed in range(1, len(options.populations) + 1)
        ],
        "one population": [
            indexed(rows_of_population(folder, [LEVEL]).to_pandas())["estimate"]
            for folder in options.populations
        ],
    }
    errors = {name: root_mean_square(found, truth) for name, found in ways.items()}
    shown = pd.DataFrame(errors).round(4)
    print("| table | iterations | measured | one population |", "|---|---|---:|---:|", sep="\n")
    for (table, kind), row in shown.iterrows():
        print(f"| {table} | {kind} | {row['measured']:g} | {row['one population']:g} |")


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
        next(wave for wave in called(run, flow.order(run, settings)) if "tables" in wave)
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
