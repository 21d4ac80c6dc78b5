"""What the choice among many optima costs those who look at pairs of attributes nobody asked for.

    .venv/bin/python -m benchmarks.unasked_pairs STATE [--seeds 3]

Where no query asks for every cell, least squares have many optima, with the same answers to what
was asked. Compared are that which is nearest to a proportional fill (`dual_newton`)
and that at which the active-set method ends from its first guess: L1 errors of all pairs of
attributes, asked and not, against the truth, as a mean over seeds of the noise. The censuses are
STATE (a folder in the layout of the CEF), by sex, age in steps of five years, Hispanic origin and
race, and the census of `natural_census.py` with age in steps of five years: at the root, and in
the counties or municipalities below the true root.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.topdown.estimation import least_squares
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement, rows_on_support
from spineflow.tasks.topdown.estimation.quadratic import MANY_UNTOLD

from benchmarks import natural_census
from benchmarks.crossing_margins import VARIANCE, distance, siblings

N_AGES = 23
"""Steps of five years, the last of 110 and more."""


@dataclass(frozen=True)
class Census:
    """A name, levels of attributes, asked queries, and the histograms (c, k) of areas."""

    name: str
    schema: Schema
    asked: tuple[str, ...]
    truth: np.ndarray


def census_of(
    name: str, levels: pd.DataFrame, n_levels: dict[str, int], area: np.ndarray, asked: list[str]
) -> Census:
    """The census of persons whose levels of attributes are columns, in areas numbered `area`."""
    labels = tuple(tuple(map(str, range(n))) for n in n_levels.values())
    schema = Schema("persons", tuple(n_levels), labels)
    cell = np.ravel_multi_index(tuple(levels[list(n_levels)].to_numpy().T), schema.shape)
    truth = np.zeros((area.max() + 1, schema.n_cells), dtype=np.int64)
    np.add.at(truth, (area, cell), 1)
    return Census(name, schema, tuple(asked), truth)


def of_state(folder: Path) -> Census:
    """Persons of a state by county."""
    columns = ["MAFID", "QSEX", "QAGE", "CENHISP", "CENRACE"]
    persons = pq.read_table(folder / "persons.parquet", columns=columns).to_pandas()
    units = pq.read_table(folder / "units.parquet", columns=["MAFID", "OIDTB"]).to_pandas()
    blocks = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str, usecols=[0, 2])
    county = units.merge(blocks, left_on="OIDTB", right_on="OIDTABBLK").set_index("MAFID")
    area = np.unique(county["TABBLKCOU"].loc[persons["MAFID"]].to_numpy(), return_inverse=True)[1]
    levels = pd.DataFrame(
        {
            "sex": persons["QSEX"].astype(int) - 1,
            "age": np.minimum(persons["QAGE"] // 5, N_AGES - 1),
            "hispanic": persons["CENHISP"].astype(int) - 1,
            "race": np.minimum(persons["CENRACE"].astype(int) - 1, 6),
        }
    )
    n_levels = {"sex": 2, "age": N_AGES, "hispanic": 2, "race": 7}
    asked = ["total", "age", "sex * hispanic", "hispanic * race"]
    return census_of("state", levels, n_levels, area, asked)


def of_natural_census() -> Census:
    """Persons of the census of natural size by municipality."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        natural_census.write_census(folder, 8_880, natural_census.PERSONS, natural_census.SECTIONS)
        persons = pq.read_table(folder / "persons.parquet").to_pandas()
    levels = persons.replace({"sex": {"F": 0, "M": 1}})
    levels["age"] //= 5
    n_levels = {"sex": 2, "age": N_AGES, "nationality": 5, "education": 8}
    area = np.unique(persons["municipality"], return_inverse=True)[1]
    asked = list(natural_census.queries_of([]))
    return census_of("declared", levels.astype(dict.fromkeys(n_levels, int)), n_levels, area, asked)


def errors(census: Census, seed: int) -> Iterator[tuple[str, str, float, float]]:
    """Place, choice, and L1 errors of asked pairs and of others."""
    schema, root = census.schema, census.truth.sum(axis=0)
    support = np.flatnonzero(root)
    pairs = [
        marginal_query(schema, " * ".join(pair)) for pair in combinations(schema.attributes, 2)
    ]
    asked = [marginal_query(schema, name) for name in census.asked]
    of_root = siblings(np.arange(schema.n_cells), 1, None, int(root.sum()))
    below = siblings(support, len(census.truth), root[support])
    for place, problem, truth in (
        ("root", of_root, root[None]),
        (f"{len(census.truth)} areas below", below, census.truth),
    ):
        rng = np.random.default_rng(seed)
        measured = {}
        for query in asked:
            noise = np.rint(rng.normal(0.0, VARIANCE**0.5, (len(truth), query.n_rows)))
            answers = query.answer(truth) + noise.astype(np.int64)
            measured[query.name] = QueryMeasurement(query, answers, np.ones(len(truth)))
        names = list(measured)
        for choice, is_wide in (("active set", False), ("nearest to a fill", True)):
            # The pass of the total has one cell, which every method takes as it is.
            def chosen(cells: int, n_rows: int, is_wide: bool = is_wide) -> bool:
                return is_wide and cells > MANY_UNTOLD

            with patch.object(least_squares, "is_wide", chosen):
                x = least_squares.solve_passes(problem, measured, [["total"], names[1:]]).x
            by_kind = [
                [rows_on_support(q, problem.cells) for q in pairs if (q.name in measured) == known]
                for known in (True, False)
            ]
            told, other = (distance(x, truth[:, problem.cells], part) for part in by_kind)
            yield place, choice, told, other


def main() -> None:
    """Print the table; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    print("| census | where | choice | asked pairs | pairs not asked |\n|---|---|---|---:|---:|")
    for census in (of_state(chosen.state), of_natural_census()):
        rows = [row for seed in range(chosen.seeds) for row in errors(census, seed)]
        frame = pd.DataFrame(rows, columns=["where", "choice", "asked", "other"])
        for (where, choice), mean in (
            frame.groupby(["where", "choice"], sort=False).mean().iterrows()
        ):
            print(f"| {census.name} | {where} | {choice} | {mean.asked:,.0f} | {mean.other:,.0f} |")


if __name__ == "__main__":
    main()
