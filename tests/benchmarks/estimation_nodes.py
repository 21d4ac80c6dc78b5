"""Time of the estimation engines against other solvers, on node problems of a real state.

Run `python tests/benchmarks/estimation_nodes.py [--blocks N] [--others N]` from the repository's
root, with clarabel, osqp and ortools installed beside the project; it reads ../shared/data/ri2010.
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
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY / ".." / "shared" / "data" / "ri2010"
GEOLEVELS = ("State", "County", "Tract", "Block_Group", "Block")
PILOTS = 2
HOPELESS = 3.0
"""A formulation so many times slower than another on the first node is not tried on more."""
TIME_LIMIT = 5.0
OBJECTIVE, CONSTRAINTS = 1e-6, 1e-6
FORMULATIONS = ("nested", "answers", "cells")
QP_PEERS = {"highs": (0.0,), "clarabel": (1e-8, 1e-10, 1e-12), "osqp": (1e-6, 1e-8)}
"""Peers of least squares, and the tolerances that they are tried with."""
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
    from spineflow.geography.spine import Spine
    from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX
    from spineflow.tasks.census.invariants import inhabitable
    from spineflow.tasks.census.queries import marginal_query
    from spineflow.tasks.noise.draws import UnchargedNoise
    from spineflow.tasks.noise.randomness import SeededRandom
    from spineflow.tasks.runs.settings_files import load_settings
    from spineflow.tasks.topdown.estimation.parent import Passes
    from spineflow.tasks.topdown.estimation.problem import QueryMeasurement, SiblingProblem
    from spineflow.tasks.topdown.ingest.ingest import check_input_of
    from spineflow.tasks.topdown.measurement.constraints import bound_names, constraints_of_shard
    from spineflow.tasks.topdown.measurement.measure import ConfidentialShard, noisy_answers
    from spineflow.tasks.topdown.settings import TopdownSettings
    from spineflow.tasks.topdown.spine.build import universe_spine
    from spineflow.tasks.topdown.spine.shards import Shard

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
    lower_name, upper_name = bound_names(schema)

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
                constraints[lower_name][start:stop],
                constraints[upper_name][start:stop],
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
        captured["networks"].append((network, answer[2] / network_flow.UNIT))
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


def constraint_rows(problem):
    """Constraints on the cells (rows, their lower and upper bounds) that some cells could break."""
    import numpy as np
    from spineflow.tasks.topdown.estimation.problem import NO_BOUND

    siblings = problem.problem
    most = np.full(siblings.upper.shape, np.inf)
    if siblings.parent_counts is not None:
        n_types = siblings.upper.shape[1]
        most[:] = np.bincount(siblings.type_of_cell, siblings.parent_counts, n_types)
    upper = np.where(siblings.upper >= most, NO_BOUND, siblings.upper)
    bounded = replace(problem, problem=replace(siblings, upper=upper))
    program, cell, _, _ = bounded.as_program()
    lower, upper = program.bounds()
    first = problem.answers.size
    return program.matrix()[first:, : cell.size], lower[first:], upper[first:]


def refining_query(labels, sizes, q, candidates):
    """Smallest query that refines q, and the row of q of each of its rows; or None."""
    import numpy as np

    found = None
    for p in candidates:
        row = np.empty(sizes[p], dtype=int)
        row[labels[p]] = labels[q]
        if np.array_equal(row[labels[p]], labels[q]) and (
            found is None or sizes[p] < sizes[found[0]]
        ):
            found = p, row
    return found


def qp_model(problem, formulation: str):
    """(P upper triangle csc, q, A csc, row lower, row upper, n cells) of a pass; A holds x >= 0.

    Columns are the cells alone ("cells": one dense Hessian for each child), or also the answers
    ("answers": a diagonal Hessian), where "nested" takes a coarser query's answers from a finer
    one's, and has no columns for answers that are single cells.
    """
    import numpy as np
    from scipy import sparse

    c, k = problem.shape
    n = c * k
    cells, row_lower, row_upper = constraint_rows(problem)
    weights = problem.scale[:, None] * problem.weights[problem.profile]
    first = problem.labels.min(axis=1)
    labels, sizes = problem.labels - first[:, None], np.ptp(problem.labels, axis=1) + 1
    cell = np.arange(n).reshape(c, k)
    columns, equations, width = {}, [], n
    if formulation == "cells":
        columns = dict.fromkeys(range(len(labels)), cell)
    for q in sorted(range(len(labels)), key=lambda q: -sizes[q]):
        if formulation == "cells":
            continue
        if formulation == "nested" and sizes[q] == k:
            columns[q] = cell[:, np.argsort(labels[q])]
            continue
        finer = refining_query(labels, sizes, q, columns) if formulation == "nested" else None
        source, row = (columns[finer[0]], finer[1]) if finer else (cell, labels[q])
        columns[q] = width + np.arange(c * sizes[q]).reshape(c, sizes[q])
        width += c * sizes[q]
        equations.append((source, columns[q], np.arange(c)[:, None] * sizes[q] + row))
    blocks = [sparse.csr_array((cells.data, cells.indices, cells.indptr), (cells.shape[0], width))]
    for source, answers, row in equations:
        ones = np.r_[np.ones(source.size), -np.ones(answers.size)]
        at = np.r_[row.ravel(), np.arange(answers.size)], np.r_[source.ravel(), answers.ravel()]
        blocks.append(sparse.csr_array((ones, at), (answers.size, width)))
    n_equations = sum(answers.size for _, answers, _ in equations)
    lower = np.concatenate([row_lower, np.zeros(n_equations), np.zeros(n)])
    upper = np.concatenate([row_upper, np.zeros(n_equations), np.full(n, np.inf)])
    blocks.append(sparse.eye_array(n, width, format="csr"))
    rows = sparse.vstack(blocks).tocsc()
    cost = np.zeros(width)
    if formulation == "cells":
        hessians = np.zeros((c, k, k))
        for q, label in enumerate(labels):
            hessians += weights[:, q, None, None] * (label[:, None] == label[None, :])
            answers = problem.answers[:, first[q] + label]
            cost -= (weights[:, q, None] * answers).ravel()
        quadratic = sparse.triu(sparse.block_diag(list(hessians)), format="csc")
        return quadratic, cost, rows, lower, upper, n
    diagonal = np.zeros(width)
    for q, size in enumerate(sizes):
        answers = problem.answers[:, first[q] : first[q] + size]
        np.add.at(diagonal, columns[q], weights[:, q, None])
        np.add.at(cost, columns[q], -weights[:, q, None] * answers)
    return sparse.diags_array(diagonal).tocsc(), cost, rows, lower, upper, n


def solve_with_highs(model, tolerance):
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


def solve_with_clarabel(model, tolerance):
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
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    started = time.perf_counter()
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(quadratic), cost, sparse.csc_matrix(stacked), right, cones, settings
    )
    solution = solver.solve()
    seconds = time.perf_counter() - started
    return np.array(solution.x), seconds


def solve_with_osqp(model, tolerance):
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
        eps_abs=tolerance,
        eps_rel=1e-3 * tolerance,
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

    fraction, labels, level_starts = network.fraction, network.labels, network.level_starts
    counted, low, high, residual = network.counted, network.low, network.high, network.residual
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
    chosen: dict[str, tuple[str, float]] = {}
    if name in QP_PEERS:
        solve = {
            "highs": solve_with_highs,
            "clarabel": solve_with_clarabel,
            "osqp": solve_with_osqp,
        }[name]

        def run(node, formulation, tolerance):
            total = inner = violation = excess = 0.0
            for problem, objective, _, _ in node["passes"]:
                started = time.perf_counter()
                model = qp_model(problem, formulation)
                x, seconds = solve(model, tolerance)
                total += time.perf_counter() - started
                inner += seconds
                x = x[: model[5]].reshape(problem.shape)
                violation = max(violation, problem.violation(x))
                excess = max(excess, (problem.objective(x) - objective) / (1.0 + objective))
            accurate = bool(violation <= CONSTRAINTS and excess <= OBJECTIVE)
            return total, inner, accurate, violation, excess

        for geolevel in GEOLEVELS:
            same = [node for node in found if node["geolevel"] == geolevel]
            same.sort(key=lambda node: node["shape"][0] * node["shape"][1])
            pilots = same[: len(same) // 2 + 1][-PILOTS:]
            best, quickest = None, TIME_LIMIT
            for how in itertools.product(FORMULATIONS, QP_PEERS[name]) if pilots else ():
                seconds, _, accurate, *_ = run(pilots[0], *how)
                if seconds > HOPELESS * quickest:
                    continue
                quickest = min(quickest, seconds) if accurate else quickest
                runs = [run(node, *how) for node in pilots]
                score = (sum(not r[2] for r in runs), sum(r[0] for r in runs))
                if best is None or score < best:
                    best, chosen[geolevel] = score, how
        answers = [run(node, *chosen[node["geolevel"]]) for node in found]
    elif name == "highs-rounder":
        from spineflow.tasks.solvers import highs
        from spineflow.tasks.topdown.estimation import rounder

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
        pickle.dump((answers, chosen), file)


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
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, source, target = options.worker
        worker(name, Path(source), Path(target))
        return
    found = ours(options.blocks, options.others)
    records = [record for node in found for _, _, _, record in node["passes"]]
    solvers = Counter(record.solver for record in records)
    print(
        f"{len(found)} nodes, {len(records)} passes: "
        f"{', '.join(f'{n} by {solver}' for solver, n in solvers.items())}; "
        f"largest violation "
        f"{max(v for node in found for _, _, v, _ in node['passes']):.1e}, largest relative gap "
        f"{max(r.gap for r in records):.1e}"
    )
    peers = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nodes.pickle"
        for name in options.peers:
            kept = networks_only(found) if name == "ortools" else found
            source.write_bytes(pickle.dumps(kept))
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
