"""Peers of the estimation engines, each in a process of its own; see `estimation_nodes.py`.

`.venv/bin/python -m benchmarks.estimation_peers NAME NODES ANSWERS` solves pickled nodes with one
peer and pickles its answers.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path

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
    first = problem.quadratic.answers.size
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
    asked = problem.quadratic
    weights = asked.scale[:, None] * asked.weights[asked.profile]
    first = asked.labels.min(axis=1)
    labels, sizes = asked.labels - first[:, None], np.ptp(asked.labels, axis=1) + 1
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
            answers = asked.answers[:, first[q] + label]
            cost -= (weights[:, q, None] * answers).ravel()
        quadratic = sparse.triu(sparse.block_diag(list(hessians)), format="csc")
        return quadratic, cost, rows, lower, upper, n
    diagonal = np.zeros(width)
    for q, size in enumerate(sizes):
        answers = asked.answers[:, first[q] : first[q] + size]
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


def distance(network, ones) -> float:
    """What ones (c, k) cost in a network, less the cost without ones, in records."""
    import numpy as np
    from spineflow.tasks.topdown.estimation.network_flow import UNIT
    from spineflow.tasks.topdown.estimation.problem import sum_rows

    cost = 0.0
    for label in network.labels[network.counted]:
        wanted, held = (sum_rows(part, label) for part in (network.fraction / UNIT, ones))
        whole = np.floor(wanted)
        over = np.maximum(held - whole, 0)
        cost += (over - np.minimum(held, whole) - 2 * (wanted - whole) * (over > 0)).sum()
    return cost


def main(name: str, source: Path, target: Path) -> None:
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
        import numpy as np
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
                abs(distance(network, result.x - np.floor(rounding.target)) - objective) <= 1e-6
                for result, rounding, (network, objective) in zip(
                    results, node["roundings"], node["networks"], strict=True
                )
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


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
