"""How far designed budgets are from the least possible error, on workloads of marginals.

Run `.venv/bin/python -m benchmarks.designed_marginals` from the repository's root. A workload asks
for every cell of all marginals of some numbers of attributes, of persons in one area. The domains
are those of the experiments of ResidualPlanner [ResidualPlanner2023] and QuerySmasher
[QuerySmasher2026]: CPS, Adult, Loans, and Synth-10^d with d attributes of 10 levels.
`spineflow design` splits a budget among the marginals of a workload and those that follow from
them; the sum of squared errors is the least of any split, to a thousandth. It is compared with the
singular value bound of Li and Miklau, below which no unbiased answers from Gaussian noise can be at
the same rho, and which both peers reach on such workloads. Figures are at rho 1, the privacy cost 1
of their papers: roots of the mean square over all cells of a workload. Adult and Loans have too
many cells for a universe, and get the bound alone. Prints a table of
benchmarks/results/designed_budget.md.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

Marginal = tuple[int, ...]

DOMAINS = {
    "CPS": (50, 100, 7, 4, 2),
    "Synth-10^2": (10,) * 2,
    "Synth-10^3": (10,) * 3,
    "Synth-10^4": (10,) * 4,
    "Synth-10^5": (10,) * 5,
    "Adult": (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2),
    "Loans": (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15),
}
WORKLOADS = {"1": (1,), "2": (2,), "3": (3,), "0 to 3": (0, 1, 2, 3)}
"""Numbers of attributes of the marginals."""
PUBLISHED = {
    "Adult": (3.047, 6.359, 10.515, 10.665),
    "CPS": (1.744, 2.035, 2.048, 2.276),
    "Loans": (2.875, 5.634, 8.702, 8.876),
}
"""ResidualPlanner's errors, workload by workload; QuerySmasher's are the same."""
MOST_CELLS = 1_000_000


def marginals(n_attributes: int, sizes: Iterable[int]) -> list[Marginal]:
    """All sets of attributes of these sizes."""
    return [one for k in sizes for one in combinations(range(n_attributes), k)]


def implied(workload: Iterable[Marginal]) -> list[Marginal]:
    """The marginals of a workload and all that follow from them, the total first."""
    found = {part for one in workload for k in range(len(one) + 1) for part in combinations(one, k)}
    return sorted(found, key=lambda one: (len(one), one))


def n_answers(domain: Sequence[int], workload: Iterable[Marginal]) -> int:
    """Number of cells of all marginals of a workload."""
    return sum(math.prod(domain[i] for i in one) for one in workload)


def singular_value_bound(domain: Sequence[int], workload: Sequence[Marginal]) -> float:
    """Least sum of squared errors of a workload's answers at rho 1.

    It is the square of the sum of the workload's singular values over the number n of cells: the
    information matrix X of noise at rho 1 has a diagonal of at most 1, and a trace of at most n, so
    that tr(W X^-1 W') >= tr((W'W)^(1/2))^2 / tr(X) by the inequality of Cauchy and Schwarz. W'W has
    one eigenvalue for the contrasts of each set of attributes: the sum, over the marginals that
    contain the set, of the number of cells that an answer adds up.
    """
    n_cells, total = math.prod(domain), 0.0
    for contrast in implied(workload):
        above = (one for one in workload if set(contrast) <= set(one))
        eigenvalue = sum(n_cells / math.prod(domain[i] for i in one) for one in above)
        total += math.prod(domain[i] - 1 for i in contrast) * math.sqrt(eigenvalue)
    return total**2 / n_cells


def designed_error(domain: Sequence[int], workload: Sequence[Marginal]) -> float:
    """Sum of squared errors of a workload's answers under the designed split of rho 1."""
    from spineflow.tasks.products.product import PRESETS
    from spineflow.tasks.runs.settings_files import load_settings
    from spineflow.tasks.topdown.design.design import NORMAL_95, design_universe
    from spineflow.tasks.topdown.design.settings import DesignSettings
    from spineflow.tasks.topdown.ingest.ingest import public_tables

    queries = {one: " * ".join(f"a{i}" for i in one) or "total" for one in implied(workload)}
    sizes = {queries[one]: n_answers(domain, [one]) for one in workload}
    with tempfile.TemporaryDirectory() as name:
        areas = Path(name) / "areas.csv"
        areas.write_text("area,name\n1,all\n", encoding="utf-8")
        levels = [{str(level): [str(level)] for level in range(n)} for n in domain]
        tables = {
            "census": {
                "geography": {"table": "areas", "geolevels": ["country", "area"]},
                "attributes": {
                    f"a{i}": {"column": f"a{i}", "levels": own} for i, own in enumerate(levels)
                },
                "universes": {
                    "persons": {
                        "table": "persons",
                        "attributes": [f"a{i}" for i in range(len(domain))],
                        "area": "area",
                    }
                },
            },
            "input": {"areas": str(areas), "persons": "not read"},
            "privacy": {"dataset": "workload"},
            "budget": {
                "persons": {
                    "rho": "1",
                    "delta": "1e-10",
                    "queries": {"other": dict.fromkeys(queries.values(), f"1/{len(queries)}")},
                }
            },
            "design": {
                "persons": {
                    "objective": "weighted_sum",
                    "tolerance": "1/1000",
                    "targets": {
                        f"t{number}": {"query": query, "level": "area", "weight": str(size)}
                        for number, (query, size) in enumerate(sizes.items())
                    },
                }
            },
        }
        settings = load_settings(DesignSettings, tables, presets=PRESETS)
        design = design_universe(settings, "persons", public_tables(settings))
    deviations = {target["query"]: target["designed"] / NORMAL_95 for target in design.targets}
    return sum(deviations[query] ** 2 * size for query, size in sizes.items())


def rows() -> Iterator[str]:
    """Rows of the table, as Markdown."""
    for name, domain in DOMAINS.items():
        for place, (shown, sizes) in enumerate(WORKLOADS.items()):
            if max(sizes) > len(domain):
                continue
            workload = marginals(len(domain), sizes)
            n = n_answers(domain, workload)
            bound = math.sqrt(singular_value_bound(domain, workload) / n)
            published = f"{PUBLISHED[name][place]:.3f}" if name in PUBLISHED else ""
            designed = ratio = ""
            if math.prod(domain) <= MOST_CELLS:
                error = math.sqrt(designed_error(domain, workload) / n)
                designed, ratio = f"{error:.3f}", f"{error / bound:.3f}"
            figures = f"{bound:.3f} | {published} | {designed} | {ratio}"
            yield f"| {name} | {shown} | {len(workload)} | {n:,} | {figures} |"


def main() -> None:
    """Print the table; see the module's docstring."""
    print("| domain | attributes | marginals | answers | bound | published | designed | ratio |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for row in rows():
        print(row, flush=True)


if __name__ == "__main__":
    main()
