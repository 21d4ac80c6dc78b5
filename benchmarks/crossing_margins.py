"""What rounding loses of margins that cross the rounder's chains, before and after the exchange.

    .venv/bin/python -m benchmarks.crossing_margins [--small 60] [--cells 8880 71040]

Small cases, of 60 to 300 cells and 1 to 6 children with margins of three attributes that cross:
the L1 distance of answers to those of the real solution, after the network flow alone, after the
exchange, and by the exact program, HiGHS over all asked margins with cells rounded up or down and
children's totals and parent sums kept.

Then the census of `natural_census.py` at the root and in its municipalities, whose parent is the
true country, with noise of its budget: L1 errors of all answers to asked queries, of all pairs of
attributes that were not asked, and of cells, against the real solution and against the truth.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.topdown.estimation import least_squares, rounder
from spineflow.tasks.topdown.estimation.exchange import exchange_records
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    rows_on_support,
    sum_rows,
)
from spineflow.tasks.topdown.estimation.rounder import (
    RoundingPass,
    round_by_flow,
    round_by_highs,
    snap_to_grid,
)
from spineflow.tasks.topdown.product import TOPDOWN

from benchmarks import natural_census

VARIANCE = 3.0
"""Of the noise of an answer: 1 / (2 rho) for a fifth of a third of rho 5/2."""


def siblings(
    cells: np.ndarray, n_children: int, parent: np.ndarray | None, total: int | None = None
) -> SiblingProblem:
    """Children without bounds, of a parent or of one exact total."""
    return SiblingProblem(
        [str(child) for child in range(n_children)],
        cells,
        np.zeros(cells.size, dtype=np.int64),
        parent,
        np.zeros((n_children, 1), dtype=np.int64),
        np.full((n_children, 1), NO_BOUND),
        None if total is None else (np.zeros(1, dtype=np.int64), np.array([total])),
    )


def distance(x: np.ndarray, other: np.ndarray, labels: Sequence[np.ndarray]) -> float:
    """L1 distance of all answers, of histograms (c, k)."""
    return sum(float(np.abs(sum_rows(x - other, label)).sum()) for label in labels)


def small_case(seed: int) -> tuple[SiblingProblem, np.ndarray, list[np.ndarray]]:
    """Fractions of a record in most cells, and three to five margins of three attributes."""
    rng = np.random.default_rng(seed)
    n_children = int(rng.integers(1, 7))
    shape: tuple[int, ...] = (0,)
    while not 60 <= np.prod(shape) <= 300:
        shape = tuple(int(size) for size in rng.integers(2, 13, 3))
    k = int(np.prod(shape))
    target, parent = rng.gamma(0.5, 0.6, (n_children, k)), None
    if n_children > 1:
        parent = np.ceil(target.sum(axis=0)).astype(np.int64)
        target = snap_to_grid(target * parent / target.sum(axis=0))
        target[-1] = np.maximum(parent - target[:-1].sum(axis=0), 0.0)
    a, b, c = np.indices(shape).reshape(3, -1)
    margins = [a, b, c, a * shape[1] + b, b * shape[2] + c]
    chosen = rng.permutation(5)[: int(rng.integers(3, 6))]
    problem = siblings(np.arange(k), n_children, parent)
    return problem, snap_to_grid(target), [margins[number] for number in chosen]


def of_small_cases(n_cases: int) -> None:
    """Print mean distances by the number of children, and how far the exchange is off at most."""
    found: dict[int, list[list[float]]] = {}
    for seed in range(n_cases):
        problem, target, labels = small_case(seed)
        total = np.zeros(target.shape[1], dtype=np.int64)
        first = round_by_flow(RoundingPass(problem, target, [total]))
        held = Pins().with_answers([total], first.x)
        cells = np.arange(target.shape[1])
        flow = round_by_flow(RoundingPass(problem, target, [cells], held)).x
        after, _ = exchange_records(problem, target, flow, [total], labels)
        exact = round_by_highs(RoundingPass(problem, target, labels, held)).x
        row = [distance(x, target, labels) for x in (flow, after, exact)]
        found.setdefault(target.shape[0], []).append(row)
    print("| children | cases | flow | exchange | exact | exchange over exact, at most |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n_children, rows in sorted(found.items()):
        flow, after, exact = np.mean(rows, axis=0)
        most = max(row[1] / row[2] for row in rows)
        print(
            f"| {n_children} | {len(rows)} | {flow:.1f} | {after:.1f} | {exact:.1f} | {most:.2f} |"
        )


class NaturalCensus:
    """The census of `natural_census.py` as histograms of municipalities, and its queries."""

    def __init__(self, n_cells: int) -> None:
        further = list(natural_census.FURTHER)[: natural_census.N_FURTHER[n_cells]]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            natural_census.write_census(
                folder, n_cells, natural_census.PERSONS, natural_census.SECTIONS
            )
            settings = TOPDOWN.load(folder / "settings.toml")
            persons = pq.read_table(folder / "persons.parquet").to_pandas()
        schema = settings.schema_of("persons")
        attributes = ["sex", "age", "nationality", "education", *further]
        levels = persons[attributes].replace({"sex": {"F": 0, "M": 1}}).astype(int)
        shape = (2, 111, 5, 8, *(natural_census.FURTHER[name] for name in further))
        cell = np.ravel_multi_index(tuple(levels.to_numpy().T), shape)
        municipality = np.unique(persons["municipality"], return_inverse=True)[1]
        self.truth = np.zeros((municipality.max() + 1, n_cells), dtype=np.int64)
        np.add.at(self.truth, (municipality, cell), 1)
        names = list(natural_census.queries_of(further))
        pairs = [" * ".join(pair) for pair in combinations(attributes, 2)]
        self.asked = [marginal_query(schema, name) for name in names]
        asked = {query.name for query in self.asked}
        crossed = [marginal_query(schema, name) for name in pairs]
        self.unasked = [query for query in crossed if query.name not in asked]
        self.chains = [[marginal_query(schema, name)] for name in ("total", "detailed")]

    def of_root(self, seed: int) -> None:
        """Print the errors of the country."""
        cells = np.arange(self.truth.shape[1])
        truth = self.truth.sum(axis=0, keepdims=True)
        problem = siblings(cells, 1, None, int(truth.sum()))
        self._compare("root", problem, truth, seed)

    def of_municipalities(self, seed: int) -> None:
        """Print the errors of the municipalities, below the true country."""
        parent = self.truth.sum(axis=0)
        cells = np.flatnonzero(parent)
        problem = siblings(cells, len(self.truth), parent[cells])
        self._compare(f"{len(self.truth)} municipalities", problem, self.truth, seed)

    def _compare(self, where: str, problem: SiblingProblem, truth: np.ndarray, seed: int) -> None:
        rng = np.random.default_rng(seed)
        measured = {}
        for query in self.asked:
            noise = np.rint(rng.normal(0.0, VARIANCE**0.5, (len(truth), query.n_rows)))
            answers = query.answer(truth) + noise.astype(np.int64)
            measured[query.name] = QueryMeasurement(query, answers, np.ones(len(truth)))
        truth = truth[:, problem.cells]
        names = list(measured)
        real = least_squares.solve_passes(problem, measured, [["total"], names[1:]]).x
        flow, of_flow = self._rounded(problem, real, [])
        after, of_both = self._rounded(problem, real, self.asked)
        for name, x in (("real", real), ("flow", flow), ("exchange", after)):
            figures = [self._errors(x, other, problem.cells) for other in (real, truth)]
            shown = (f"{figure:,.0f}" for figure in [*figures[0], *figures[1]])
            took = f"{max(of_both - of_flow, 0.0):.1f}" if name == "exchange" else ""
            print(f"| {where} | {name} | {' | '.join(shown)} | {took} |")

    def _rounded(
        self, problem: SiblingProblem, real: np.ndarray, asked: Sequence[MarginalQuery]
    ) -> tuple[np.ndarray, float]:
        """The rounder's integers, and its seconds of processor time."""
        started = time.process_time()
        result = rounder.solve_passes(problem, real, self.chains, asked)
        return result.x, time.process_time() - started

    def _errors(self, x: np.ndarray, other: np.ndarray, cells: np.ndarray) -> list[float]:
        def labels(queries: Sequence[MarginalQuery]) -> list[np.ndarray]:
            return [rows_on_support(query, cells) for query in queries]

        every = [np.arange(cells.size)]
        return [
            distance(x, other, part) for part in (labels(self.asked), labels(self.unasked), every)
        ]


def main() -> None:
    """Print the tables; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", type=int, default=60, help="number of small cases")
    parser.add_argument("--cells", type=int, nargs="*", default=[8_880, 71_040])
    parser.add_argument("--seed", type=int, default=5)
    chosen = parser.parse_args()
    of_small_cases(chosen.small)
    for n_cells in chosen.cells:
        census = NaturalCensus(n_cells)
        print(f"\n{n_cells:,} cells: asked, pairs not asked, cells; to x~, to the truth\n")
        census.of_root(chosen.seed)
        census.of_municipalities(chosen.seed)


if __name__ == "__main__":
    main()
