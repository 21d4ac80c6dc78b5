"""Time of the estimation engines against other solvers, on node problems of a real state.

Run `python tests/benchmarks/estimation_nodes.py [--blocks N] [--others N]` from the repository's
root, with clarabel, osqp and ortools installed beside the project; it reads ../shared/data/ri2010.
Nodes are parents of the optimised spine with their true counts, measured by the product's own
sampler under the 2020 production budget (seeded, so that runs compare).

Least squares: every pass of a node, by ours, HiGHS QP, Clarabel and OSQP. Each peer gets the
faster of two formulations, chosen on some middling nodes of each geolevel: query answers as
variables (sparse constraints, diagonal Hessian) or cells alone (dense Hessian of every child).
Rounder: every pass, by ours, HiGHS's linear program and OR-tools' min-cost flow on the same
network. Each solver runs in a process of its own with one thread and at most 20 s a pass; models
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
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY / ".." / "shared" / "data" / "ri2010"
GEOLEVELS = ("State", "County", "Tract", "Block_Group", "Block")
PILOTS = 3
TIME_LIMIT = 20.0
OBJECTIVE, CONSTRAINTS = 1e-6, 1e-6
QP_PEERS = ("highs", "clarabel", "osqp")
ROUNDER_PEERS = ("highs-rounder", "ortools")
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
SETTINGS = """
preset = "pl94_2020_us"
[input]
persons = "{folder}/persons.parquet"
units = "{folder}/units.parquet"
geography = "{folder}/grfc.txt"
confidential = false
[privacy]
dataset = "benchmark"
seed = 1
"""


def nodes(n_blocks: int, n_others: int):
    """Yield (geolevel, parent, problem, measurements, passes) of evenly spaced parents."""
    import numpy as np
    from scipy import sparse

    from geography.spine import Spine
    from tasks.estimation.parent import Passes
    from tasks.estimation.problem import QueryMeasurement, SiblingProblem
    from tasks.ingest.invariants import inhabitable
    from tasks.ingest.run import check_input_of
    from tasks.measurement.constraints import LOWER_BOUND, UPPER_BOUND, constraints_of_shard
    from tasks.measurement.measure import DPQUERY_SUFFIX, MeasuredShard, noisy_answers
    from tasks.measurement.randomness import SeededRandom
    from tasks.settings.load import load_settings
    from tasks.settings.topdown import TopdownSettings
    from tasks.spine.build import universe_spine
    from tasks.spine.shards import Shard
    from tasks.workload.queries import marginal_query

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text(SETTINGS.format(folder=SHARED.resolve()))
        settings = load_settings(TopdownSettings, path, presets=REPOSITORY / "flows" / "settings")
    result = check_input_of(settings).accepted()
    spine: Spine = universe_spine(settings, "persons", result.geography, result.invariants)
    schema, budget = settings.schema_of("persons"), settings.budget_of("persons")
    used = inhabitable(result.invariants)
    blocks = result.histograms["persons"][np.flatnonzero(used)][spine.block_row]
    invariants = result.invariants[used].iloc[spine.block_row].reset_index(drop=True)
    type_of_cell = schema.levels("hhgq")

    def histograms(geolevel: str) -> sparse.csr_array:
        ancestor = spine.ancestors(geolevel)
        shape = (len(spine.geolevel(geolevel)), spine.n_blocks)
        ones = np.ones(spine.n_blocks, dtype=np.int64)
        return sparse.csr_array((ones, (ancestor, np.arange(spine.n_blocks))), shape) @ blocks

    for above, geolevel in zip(spine.names, spine.names[1:], strict=False):
        level, offsets = spine.geolevel(geolevel), spine.children(above)
        truth, parents = histograms(geolevel), histograms(above)
        whole = Shard(geolevel, "all", 0, len(offsets) - 1, 0, len(level))
        constraints = {
            constraint.query_name: constraint.values
            for constraint in constraints_of_shard(
                spine, whole, schema, invariants, result.state_totals, ()
            )
        }
        shard = MeasuredShard(
            geolevel, truth, level.geocode, level.plb_shares, level.plb_share_code
        )
        source = SeededRandom(1, geolevel)
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
                constraints[LOWER_BOUND][start:stop],
                constraints[UPPER_BOUND][start:stop],
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
    from tasks.estimation import flow, least_squares, rounder
    from tasks.estimation.least_squares import PassProblem

    captured: dict[str, list] = {"passes": [], "networks": [], "roundings": []}
    inner = {"ls": 0.0, "flow": 0.0}
    solve_pass, solve_flow, round_by_flow = PassProblem.solve, flow.solve, rounder.round_by_flow

    def timed_pass(self):
        started = time.perf_counter()
        x, record = solve_pass(self)
        inner["ls"] += time.perf_counter() - started
        captured["passes"].append((self, self.objective(x), self.violation(x), record))
        return x, record

    def timed_flow(*network):
        started = time.perf_counter()
        answer = solve_flow(*network)
        inner["flow"] += time.perf_counter() - started
        captured["networks"].append((network, answer[2] / flow.UNIT))
        return answer

    def keep(rounding):
        captured["roundings"].append(rounding)
        return round_by_flow(rounding)

    PassProblem.solve, flow.solve, rounder.round_by_flow = timed_pass, timed_flow, keep
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


def qp_model(problem, formulation: str):
    """(P upper triangle csc, q, A csc, row lower, row upper, n cells) of a pass; A holds x >= 0."""
    import numpy as np
    from scipy import sparse

    program, cell, cost, diagonal = problem.as_program()
    matrix = program.matrix()
    row_lower, row_upper = program.bounds()
    n = cell.size
    if formulation == "answers":
        quadratic = sparse.diags_array(diagonal).tocsc()
    else:
        n_answer_rows = problem.answers.size
        matrix = matrix[n_answer_rows:, :n]
        row_lower, row_upper = row_lower[n_answer_rows:], row_upper[n_answer_rows:]
        quadratic = sparse.triu(
            sparse.block_diag(
                [
                    scale * problem.hessians[profile]
                    for scale, profile in zip(problem.scale, problem.profile, strict=True)
                ]
            ),
            format="csc",
        )
        cost = -(problem.scale[:, None] * problem.b).ravel()
    at_least_zero = sparse.eye_array(n, matrix.shape[1], format="csr")
    rows = sparse.vstack([matrix, at_least_zero]).tocsc()
    lower = np.concatenate([row_lower, np.zeros(n)])
    upper = np.concatenate([row_upper, np.full(n, np.inf)])
    return quadratic, cost, rows, lower, upper, n


def solve_with_highs(model):
    import highspy
    import numpy as np
    from scipy import sparse

    quadratic, cost, rows, lower, upper, n = model
    m = rows.shape[0] - n
    rows = rows.tocsr()[:m]
    highs = highspy.HighsModel()
    lp = highs.lp_
    lp.num_col_, lp.num_row_ = cost.size, m
    lp.col_cost_ = cost
    lp.col_lower_ = np.where(np.arange(cost.size) < n, 0.0, -np.inf)
    lp.col_upper_ = np.full(cost.size, np.inf)
    lp.row_lower_, lp.row_upper_ = lower[:m], upper[:m]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = rows.indptr, rows.indices
    lp.a_matrix_.value_ = rows.data
    hessian = sparse.csc_array(quadratic.T)
    hessian.sort_indices()
    highs.hessian_.dim_ = cost.size
    highs.hessian_.format_ = highspy.HessianFormat.kTriangular
    highs.hessian_.start_, highs.hessian_.index_ = hessian.indptr, hessian.indices
    highs.hessian_.value_ = hessian.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", TIME_LIMIT)
    started = time.perf_counter()
    solver.passModel(highs)
    solver.run()
    seconds = time.perf_counter() - started
    return np.array(solver.getSolution().col_value), seconds


def solve_with_clarabel(model):
    import clarabel
    import numpy as np
    from scipy import sparse

    quadratic, cost, rows, lower, upper, _ = model
    rows = rows.tocsr()
    equal = lower == upper
    at_most, at_least = ~equal & np.isfinite(upper), ~equal & np.isfinite(lower)
    stacked = sparse.vstack([rows[equal], rows[at_most], -rows[at_least]]).tocsc()
    right = np.concatenate([upper[equal], upper[at_most], -lower[at_least]])
    cones = [
        clarabel.ZeroConeT(int(equal.sum())),
        clarabel.NonnegativeConeT(int(at_most.sum() + at_least.sum())),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.time_limit = TIME_LIMIT
    started = time.perf_counter()
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(quadratic), cost, sparse.csc_matrix(stacked), right, cones, settings
    )
    solution = solver.solve()
    seconds = time.perf_counter() - started
    return np.array(solution.x), seconds


def solve_with_osqp(model):
    import osqp
    from scipy import sparse

    quadratic, cost, rows, lower, upper, _ = model
    started = time.perf_counter()
    solver = osqp.OSQP()
    solver.setup(
        sparse.csc_matrix(quadratic),
        cost,
        sparse.csc_matrix(rows),
        lower,
        upper,
        verbose=False,
        eps_abs=1e-6,
        eps_rel=1e-9,
        max_iter=100_000,
        polishing=True,
        time_limit=TIME_LIMIT,
    )
    solution = solver.solve()
    return solution.x, time.perf_counter() - started


def solve_with_ortools(network):
    """Objective, in units of one, of the network's min-cost flow; total and solver seconds."""
    import numpy as np
    from ortools.graph.python import min_cost_flow

    (fraction, labels, level_starts, counted, low, high, _, residual, _, group, _) = network
    unit = 1 << 24
    started = time.perf_counter()
    c, k = fraction.shape
    child, cell = np.nonzero(fraction)
    n_levels, n_nodes = len(labels), int(level_starts[-1])
    width = np.diff(level_starts) // c
    node = np.stack([level_starts[v] + child * width[v] + labels[v][cell] for v in range(n_levels)])
    parent = np.full(n_nodes, n_nodes)
    wanted = np.zeros(n_nodes, dtype=np.int64)
    size = np.zeros(n_nodes, dtype=np.int64)
    is_counted = np.zeros(n_nodes, dtype=bool)
    for v in range(n_levels):
        if v:
            parent[node[v]] = node[v - 1]
        np.add.at(wanted, node[v], fraction[child, cell])
        np.add.at(size, node[v], 1)
        is_counted[level_starts[v] : level_starts[v + 1]] = counted[v]
    used = np.flatnonzero(size)
    least, most = low[used], np.minimum(high[used], size[used])
    supply = np.zeros(n_nodes + 1 + k, dtype=np.int64)
    supply[n_nodes] = residual.sum()
    supply[n_nodes + 1 :] = -residual
    least = np.maximum(least, 0)
    np.add.at(supply, used, least)
    np.add.at(supply, parent[used], -least)
    whole = wanted[used] // unit
    middle = unit - 2 * (wanted[used] - whole * unit)
    flat = ~is_counted[used]
    pieces = [
        (-unit, np.minimum(whole, most) - np.minimum(whole, least)),
        (middle, np.clip(most - whole, 0, 1) - np.clip(least - whole, 0, 1)),
        (unit, np.maximum(most - whole - 1, 0) - np.maximum(least - whole - 1, 0)),
    ]
    tails, heads, capacity, cost = [], [], [], []
    for price, room in pieces:
        keep = ~flat & (room > 0)
        tails.append(parent[used][keep])
        heads.append(used[keep])
        capacity.append(room[keep])
        cost.append(np.broadcast_to(price, used.shape)[keep])
    tails.append(parent[used][flat])
    heads.append(used[flat])
    capacity.append((most - least)[flat])
    cost.append(np.zeros(int(flat.sum()), dtype=np.int64))
    tails.append(node[-1])
    heads.append(n_nodes + 1 + cell)
    capacity.append(np.ones(cell.size, dtype=np.int64))
    cost.append(np.zeros(cell.size, dtype=np.int64))
    solver = min_cost_flow.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(
        np.concatenate(tails),
        np.concatenate(heads),
        np.concatenate(capacity),
        np.concatenate(cost),
    )
    solver.set_nodes_supplies(np.arange(supply.size), supply)
    built = time.perf_counter()
    status = solver.solve()
    stopped = time.perf_counter()
    if status != solver.OPTIMAL:
        return float("nan"), stopped - started, stopped - built
    fixed = np.minimum(whole, least) * -unit + np.clip(least - whole, 0, 1) * middle
    fixed += np.maximum(least - whole - 1, 0) * unit
    objective = solver.optimal_cost() + int(fixed[~flat].sum())
    return objective / unit, stopped - started, stopped - built


def worker(name: str, source: Path, target: Path) -> None:
    """Solve the pickled nodes with one peer; writes (total, solver, accurate) of every node."""
    with source.open("rb") as file:
        found = pickle.load(file)
    answers = []
    formulation: dict[str, str] = {}
    if name in QP_PEERS:
        solve = {
            "highs": solve_with_highs,
            "clarabel": solve_with_clarabel,
            "osqp": solve_with_osqp,
        }[name]

        def run(node, how):
            total = inner = 0.0
            accurate = True
            for problem, objective, _, _ in node["passes"]:
                started = time.perf_counter()
                model = qp_model(problem, how)
                x, seconds = solve(model)
                total += time.perf_counter() - started
                inner += seconds
                x = x[: model[5]].reshape(problem.b.shape)
                accurate &= problem.violation(x) <= CONSTRAINTS * 1.01
                accurate &= problem.objective(x) <= objective * (1 + OBJECTIVE) + 1e-9
                accurate &= objective <= problem.objective(x) * (1 + OBJECTIVE) + 1e-4
            return total, inner, bool(accurate)

        for node in found:
            geolevel = node["geolevel"]
            if geolevel not in formulation:
                pilots = [other for other in found if other["geolevel"] == geolevel]
                pilots.sort(key=lambda other: other["shape"][0] * other["shape"][1])
                seconds = {}
                for how in ("answers", "cells"):
                    run(pilots[0], how)
                    middle = len(pilots) // 2
                    seconds[how] = sum(
                        run(other, how)[0] for other in pilots[: middle + 1][-PILOTS:]
                    )
                formulation[geolevel] = min(seconds, key=seconds.get)
            answers.append(run(node, formulation[geolevel]))
    elif name == "highs-rounder":
        from tasks.estimation import highs, rounder

        inner = {"seconds": 0.0}
        plain = highs.solve

        def timed(*arguments, **options):
            started = time.perf_counter()
            result = plain(*arguments, **options)
            inner["seconds"] += time.perf_counter() - started
            return result

        highs.solve = timed
        for node in found:
            for _ in range(2):
                inner["seconds"] = 0.0
                started = time.perf_counter()
                results = [rounder.round_by_highs(rounding) for rounding in node["roundings"]]
                total = time.perf_counter() - started
            same = all(
                abs(result.objective - objective) <= 1e-6
                for result, (_, objective) in zip(results, node["networks"], strict=True)
            )
            answers.append((total, inner["seconds"], same))
    else:
        for node in found:
            for _ in range(2):
                results = [solve_with_ortools(network) for network, _ in node["networks"]]
            same = all(
                abs(result[0] - objective) <= 1e-6
                for result, (_, objective) in zip(results, node["networks"], strict=True)
            )
            answers.append((sum(r[1] for r in results), sum(r[2] for r in results), same))
    with target.open("wb") as file:
        pickle.dump((answers, formulation), file)


def report(found: list[dict], peers: dict[str, tuple], key: str) -> None:
    """Print medians by geolevel: milliseconds, and ratios of every peer and of the fastest."""
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
        for name, (answers, formulation) in peers.items():
            theirs = np.array([answers[i][:2] for i in rows]) * 1e3
            accurate = np.array([answers[i][2] for i in rows])
            totals.append(theirs)
            how = f" as {formulation[geolevel]}" if geolevel in formulation else ""
            print(
                f"    {name:14s}{how:12s} {np.median(theirs[:, 0]):9.2f} "
                f"({np.median(theirs[:, 1]):.2f}), x {np.median(theirs[:, 0] / own[:, 0]):.1f} "
                f"({np.median(theirs[:, 1] / own[:, 1]):.1f}); "
                f"same optimum on {accurate.sum()} of {len(rows)}"
            )
        if not totals:
            continue
        fastest = np.min(totals, axis=0)
        print(
            f"    fastest of them on each node: x {np.median(fastest[:, 0] / own[:, 0]):.1f} "
            f"({np.median(fastest[:, 1] / own[:, 1]):.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=200, help="parents of blocks")
    parser.add_argument("--others", type=int, default=30, help="parents at each other geolevel")
    parser.add_argument("--peers", nargs="*", default=[*QP_PEERS, *ROUNDER_PEERS])
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY))
    if options.worker:
        name, source, target = options.worker
        worker(name, Path(source), Path(target))
        return
    found = ours(options.blocks, options.others)
    records = [record for node in found for _, _, _, record in node["passes"]]
    print(
        f"{len(found)} nodes, {len(records)} passes: "
        f"{sum(r.solver == 'active set' for r in records)} by the active-set method; "
        f"largest violation "
        f"{max(v for node in found for _, _, v, _ in node['passes']):.1e}, largest relative gap "
        f"{max(r.gap for r in records):.1e}"
    )
    peers = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nodes.pickle"
        for name in options.peers:
            kept = {"ortools": ("networks",)}.get(name, ("passes", "networks", "roundings"))
            slim = [
                {field: node[field] for field in ("geolevel", "shape", *kept)} for node in found
            ]
            source.write_bytes(pickle.dumps(slim))
            target = Path(folder) / f"{name}.pickle"
            subprocess.run(
                [sys.executable, __file__, "--worker", name, str(source), str(target)],
                check=True,
                env={**os.environ, **ONE_THREAD},
            )
            peers[name] = pickle.loads(target.read_bytes())
    report(found, {n: a for n, a in peers.items() if n in QP_PEERS}, "ls")
    report(found, {n: a for n, a in peers.items() if n in ROUNDER_PEERS}, "rounder")


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    main()
