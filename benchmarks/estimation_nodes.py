"""Time of the estimation engines against other solvers, on node problems of a real state.

Run `.venv/bin/python -m benchmarks.estimation_nodes [--blocks N] [--others N]` from the
repository's root, with clarabel, osqp and ortools installed beside the project; it reads
../shared/data/ri2010.
Nodes are parents of the optimised spine with their true counts, measured by the product's own
sampler under the 2020 production budget (seeded, so that runs compare).

Least squares: every pass of a node, by ours, HiGHS QP, Clarabel and OSQP. Each peer gets, at each
geolevel, the fastest of three formulations (see `qp_model`) and of some tolerances with which it
finds the optimum on middling nodes: constraints to 1e-6, objective to 1e-6 (relative, plus one).
Rounder: every pass, by ours, HiGHS's linear program and OR-tools' min-cost flow on the same
network. Each solver runs in a process of its own with one thread and at most 5 s a pass; models
are passed as arrays. Total time includes building the model from the arrays that ours starts
from; ours includes everything from the noisy answers on. Our times and the rounders' are of a
second run, after compilation and first use. HiGHS QP is slow on nodes of many thousand cells:
`--peers clarabel osqp` leaves it out.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from benchmarks.estimation_peers import GEOLEVELS, QP_PEERS, ROUNDER_PEERS, distance
from benchmarks.public_persons import settings_of, state

PEERS = Path(__file__).with_name("estimation_peers.py")
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)


def nodes(n_blocks: int, n_others: int):
    """Yield (geolevel, parent, problem, measurements, passes) of evenly spaced parents."""
    import numpy as np
    from scipy import sparse
    from spineflow.geography.spine import Spine
    from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX
    from spineflow.tasks.census.invariants import inhabitable
    from spineflow.tasks.census.queries import marginal_query
    from spineflow.tasks.ledger.charging import UnchargedNoise
    from spineflow.tasks.noise.distributions import SeededRandom
    from spineflow.tasks.topdown.estimation.parent import Passes
    from spineflow.tasks.topdown.estimation.problem import QueryMeasurement, SiblingProblem
    from spineflow.tasks.topdown.ingest.ingest import check_input_of
    from spineflow.tasks.topdown.measurement.constraints import bound_values
    from spineflow.tasks.topdown.measurement.measure import ConfidentialShard, noisy_answers
    from spineflow.tasks.topdown.measurement.public_answers import frame_multiples
    from spineflow.tasks.topdown.product import TOPDOWN
    from spineflow.tasks.topdown.spine.build import spines_of

    settings = TOPDOWN.load(settings_of(state(), universes=["persons"]))
    result = check_input_of(settings).accepted()
    spine: Spine = spines_of(settings).spine("persons", (result.geography, result.public))
    schema, budget = settings.schema_of("persons"), settings.budget_of("persons")
    used = inhabitable(result.public)
    blocks = result.histograms["persons"][np.flatnonzero(used)][spine.block_row]
    invariants = result.public[used].iloc[spine.block_row].reset_index(drop=True)
    type_of_cell = schema.levels("hhgq")
    universe = settings.compiled_census.universes["persons"]
    (bounded,) = universe.bounded_queries
    addresses = frame_multiples(universe, invariants)

    def histograms(geolevel: str) -> sparse.csr_array:
        ancestor = spine.ancestors(geolevel)
        shape = (len(spine.geolevel(geolevel)), spine.n_blocks)
        ones = np.ones(spine.n_blocks, dtype=np.int64)
        return sparse.csr_array((ones, (ancestor, np.arange(spine.n_blocks))), shape) @ blocks

    for above, geolevel in zip(spine.names, spine.names[1:], strict=False):
        level, offsets = spine.geolevel(geolevel), spine.children(above)
        truth, parents = histograms(geolevel), histograms(above)
        records = [np.zeros((len(level), own.shape[1]), dtype=np.int64) for own in addresses]
        for sums, own in zip(records, addresses, strict=True):
            np.add.at(sums, spine.ancestors(geolevel), own)
        lower, upper = bound_values(bounded, schema, records)
        shard = ConfidentialShard(
            geolevel, truth, level.geocode, level.plb_shares, level.plb_share_code
        )
        source = UnchargedNoise(SeededRandom(1, geolevel))
        # Shares of zero leave out only children, which are no problem to solve.
        values: dict[str, np.ndarray] = {}
        precision: dict[str, np.ndarray] = {}
        position = {code: number for number, code in enumerate(level.geocode)}
        for part in noisy_answers(shard, budget, schema, source):
            for answers in part:
                name = answers.query_name.removesuffix(DPQUERY_SUFFIX)
                n_rows = answers.values.shape[1]
                rows = [position[code] for code in answers.geocode]
                values.setdefault(name, np.zeros((len(level), n_rows), dtype=np.int64))
                precision.setdefault(name, np.zeros(len(level)))
                values[name][rows] = answers.values
                precision[name][rows] = 1.0 / answers.variance
        chosen = settings.passes_of("persons", geolevel)
        passes = Passes(
            chosen.least_squares,
            tuple(tuple(marginal_query(schema, n) for n in names) for names in chosen.rounder),
        )
        eligible = np.flatnonzero((np.diff(offsets) > 1) & (parents.sum(axis=1) > 0))
        most = n_blocks if geolevel == "Block" else n_others
        picked = np.unique(np.linspace(0, eligible.size - 1, most).astype(int))
        for parent in eligible[picked]:
            start, stop = offsets[parent], offsets[parent + 1]
            counts = parents[[parent]].toarray()[0]
            support = np.flatnonzero(counts)
            support = support[np.argsort(type_of_cell[support], kind="stable")]
            problem = SiblingProblem(
                list(level.geocode[start:stop]),
                support,
                type_of_cell[support],
                counts[support],
                lower[start:stop],
                upper[start:stop],
            )
            measured = {
                name: QueryMeasurement(
                    marginal_query(schema, name),
                    values[name][start:stop],
                    precision[name][start:stop],
                )
                for name in values
            }
            yield geolevel, spine.geolevel(above).geocode[parent], problem, measured, passes


def ours(n_blocks: int, n_others: int) -> list[dict]:
    """Solve every node twice; keep its passes for the peers, and the times of the second run."""
    from spineflow.tasks.topdown.estimation import least_squares, network_flow, rounder
    from spineflow.tasks.topdown.estimation.least_squares import PassProblem

    captured: dict[str, list] = {"passes": [], "networks": [], "roundings": []}
    inner = {"ls": 0.0, "flow": 0.0}
    solve_pass, solve_flow, round_by_flow = (
        PassProblem.solve,
        network_flow.solve,
        rounder.round_by_flow,
    )

    def timed_pass(self, **options):
        started = time.perf_counter()
        x, record = solve_pass(self, **options)
        inner["ls"] += time.perf_counter() - started
        captured["passes"].append((self, self.objective(x), self.violation(x), record))
        return x, record

    def timed_flow(network):
        started = time.perf_counter()
        answer = solve_flow(network)
        inner["flow"] += time.perf_counter() - started
        captured["networks"].append((network, distance(network, answer[1])))
        return answer

    def keep(rounding):
        captured["roundings"].append(rounding)
        return round_by_flow(rounding)

    PassProblem.solve, network_flow.solve, rounder.round_by_flow = timed_pass, timed_flow, keep
    found = []
    for geolevel, parent, problem, measured, passes in nodes(n_blocks, n_others):
        for _ in range(2):
            for kept in captured.values():
                kept.clear()
            inner.update(ls=0.0, flow=0.0)
            started = time.perf_counter()
            result = least_squares.solve_passes(problem, measured, passes.least_squares)
            middle = time.perf_counter()
            rounder.solve_passes(problem, result.x, passes.rounder)
            stopped = time.perf_counter()
        found.append(
            {
                "geolevel": geolevel,
                "parent": parent,
                "shape": (problem.n_children, problem.cells.size),
                "ls": (middle - started, inner["ls"]),
                "rounder": (stopped - middle, inner["flow"]),
                **{name: list(kept) for name, kept in captured.items()},
            }
        )
    return found


def networks_only(found: list[dict]) -> list[dict]:
    """The nodes' networks as bare arrays, which are read without importing anything of ours.

    Ours imports highspy, whose library and OR-tools' own HiGHS cannot be in one process.
    """
    return [
        {
            "networks": [
                (SimpleNamespace(**network._asdict()), objective)
                for network, objective in node["networks"]
            ]
        }
        for node in found
    ]


def report(found: list[dict], peers: dict[str, tuple], key: str) -> None:
    """Print medians by geolevel: milliseconds, and ratios of all peers and of the fastest right."""
    import numpy as np

    title = "least squares" if key == "ls" else "rounder"
    print(f"\n{title}: median milliseconds, total (solver only); times slower than ours")
    for geolevel in GEOLEVELS:
        rows = [i for i, node in enumerate(found) if node["geolevel"] == geolevel]
        if not rows:
            continue
        own = np.array([found[i][key] for i in rows]) * 1e3
        shapes = np.array([found[i]["shape"] for i in rows])
        print(
            f"{geolevel:12s} {len(rows):4d} nodes, median {np.median(shapes[:, 0]):.0f} children "
            f"x {np.median(shapes[:, 1]):.0f} cells: ours {np.median(own[:, 0]):.2f} "
            f"({np.median(own[:, 1]):.2f})"
        )
        totals = []
        for name, (answers, chosen) in peers.items():
            theirs = np.array([answers[i][:2] for i in rows]) * 1e3
            accurate = np.array([answers[i][2] for i in rows])
            totals.append(np.where(accurate[:, None], theirs, np.inf))
            misses = ""
            if name in QP_PEERS:
                worst = np.max([answers[i][3:] for i in rows], axis=0)
                misses = ", misses by {:.0e} records, objective {:.0e} at most".format(*worst)
            how = "{} {:.0e}".format(*chosen[geolevel]) if geolevel in chosen else ""
            print(
                f"    {name:14s}{how:14s} {np.median(theirs[:, 0]):9.2f} "
                f"({np.median(theirs[:, 1]):.2f}), x {np.median(theirs[:, 0] / own[:, 0]):.1f} "
                f"({np.median(theirs[:, 1] / own[:, 1]):.1f}); "
                f"same optimum on {accurate.sum()} of {len(rows)}" + misses
            )
        if not totals:
            continue
        fastest = np.min(totals, axis=0)
        found_by_any = np.isfinite(fastest[:, 0])
        ratios = np.median((fastest / own)[found_by_any], axis=0) if found_by_any.any() else []
        print(
            f"    fastest of those with the same optimum, {found_by_any.sum()} nodes: "
            + (f"x {ratios[0]:.1f} ({ratios[1]:.1f})" if len(ratios) else "none")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=200, help="parents of blocks")
    parser.add_argument("--others", type=int, default=30, help="parents at each other geolevel")
    parser.add_argument("--peers", nargs="*", default=[*QP_PEERS, *ROUNDER_PEERS])
    options = parser.parse_args()
    found = ours(options.blocks, options.others)
    records = [record for node in found for _, _, _, record in node["passes"]]
    solvers = Counter(record.solver for record in records)
    print(
        f"{len(found)} nodes, {len(records)} passes: "
        f"{', '.join(f'{n} by {solver}' for solver, n in solvers.items())}; "
        f"largest violation "
        f"{max(v for node in found for _, _, v, _ in node['passes']):.1e}, largest relative gap "
        f"{max(r.objective_gap for r in records):.1e}"
    )
    peers = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nodes.pickle"
        for name in options.peers:
            kept = networks_only(found) if name == "ortools" else found
            source.write_bytes(pickle.dumps(kept))
            target = Path(folder) / f"{name}.pickle"
            subprocess.run(
                [sys.executable, str(PEERS), name, str(source), str(target)],
                check=True,
                env={**os.environ, **ONE_THREAD},
            )
            peers[name] = pickle.loads(target.read_bytes())
    report(found, {n: a for n, a in peers.items() if n in QP_PEERS}, "ls")
    report(found, {n: a for n, a in peers.items() if n in ROUNDER_PEERS}, "rounder")


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    main()
