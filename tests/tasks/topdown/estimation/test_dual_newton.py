"""Newton's method on the multipliers of rows: optimal, and near to the fill."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.solvers import highs
from spineflow.tasks.solvers.highs import LinearProgram, SolveStatus
from spineflow.tasks.topdown.estimation import dual_kernels, dual_newton, least_squares
from spineflow.tasks.topdown.estimation.dual_newton import dual_problem, proportional_fill
from spineflow.tasks.topdown.estimation.least_squares import PassProblem
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    LinearRows,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    rows_on_support,
    sum_rows,
)
from spineflow.tasks.topdown.estimation.quadratic import factor

from tests.seeds import seeds


def marginal(shape, kept):
    """The query that keeps some axes of a shape and sums over the others."""
    factors = tuple(
        tuple(range(size)) if axis in kept else (0,) * size for axis, size in enumerate(shape)
    )
    return MarginalQuery(" * ".join(map(str, kept)) or "total", factors)


def random_pass(
    rng,
    shape,
    n_children,
    *,
    is_root=False,
    rows=False,
    held=True,
    detailed=False,
    impossible=0.0,
    lacking=0.0,
):
    """A pass of crossing margins around a random true histogram, which meets every constraint.

    impossible : chance of a cell to be a structural zero. lacking : that of a child to have no cell
    of a type, which the bounds say.
    """
    n_cells = int(np.prod(shape))
    truth = rng.poisson(rng.gamma(0.3, 3.0, n_cells), (n_children, n_cells))
    truth[:, rng.random(n_cells) < 0.2] = 0
    is_possible = rng.random(n_cells) >= impossible if impossible else np.ones(n_cells, dtype=bool)
    truth[:, ~is_possible] = 0
    lacks = np.zeros((n_children, shape[0]), dtype=bool)
    if lacking:
        lacks = rng.random(lacks.shape) < lacking
        truth[np.repeat(lacks, n_cells // shape[0], axis=1)] = 0
    cells = np.flatnonzero(is_possible if is_root else truth.sum(axis=0))
    type_of_cell = cells // (n_cells // shape[0])
    truth = truth[:, cells]
    of_type = sum_rows(truth, type_of_cell, shape[0]).astype(np.int64)
    lower, upper = of_type - rng.integers(0, 3, of_type.shape), of_type + rng.integers(0, 9)
    upper[rng.random(upper.shape) < 0.3] = NO_BOUND
    upper[lacks] = 0
    problem = SiblingProblem(
        [str(i) for i in range(n_children)],
        cells,
        type_of_cell,
        None if is_root else truth.sum(axis=0),
        np.maximum(lower, 0),
        upper,
        (np.arange(n_children), truth.sum(axis=1)) if held else None,
        (linear_rows(rng, truth),) if rows else (),
    )
    kept = [(), *((axis,) for axis in range(len(shape))), (0, len(shape) - 1), (1, 2)]
    asked = []
    for axes in (*kept, tuple(range(len(shape)))) if detailed else kept:
        query = marginal(shape, axes)
        answers = np.zeros((n_children, query.n_rows))
        for i in range(n_children):
            answers[i] = np.bincount(query.row_of_cell[cells], truth[i], query.n_rows)
        noise = np.rint(rng.normal(0, 2.0, answers.shape))
        precision = rng.choice([0.25, 0.5, 1.0], n_children) if len(asked) % 2 else 0.3
        asked.append(QueryMeasurement(query, answers + noise, np.zeros(n_children) + precision))
    labels = [rows_on_support(one.query, cells) for one in asked]
    return PassProblem.build(problem, asked, labels, Pins()), truth


def linear_rows(rng, truth):
    """Two weighted sums of cells, over pairs of children, between bounds near the truth's."""
    n_children, n_cells = truth.shape
    matrix = sparse.csr_array(rng.integers(-2, 3, (2, n_cells)) * (rng.random((2, n_cells)) < 0.4))
    group = np.arange(n_children) // 2
    group[-1] = -1 if n_children > 2 else group[-1]
    n_groups = int(group.max()) + 1
    sums = np.zeros((n_groups, 2))
    for i in range(n_children):
        if group[i] >= 0:
            sums[group[i]] += matrix @ truth[i]
    return LinearRows("sums", matrix, group, sums - 1, sums + rng.integers(0, 4, sums.shape))


CASES = [
    {"shape": (2, 7, 3), "n_children": 5},
    {"shape": (3, 6, 4), "n_children": 1, "is_root": True},
    {"shape": (2, 9, 4), "n_children": 8, "held": False},
    {"shape": (2, 5, 3, 2), "n_children": 4, "rows": True},
    {"shape": (2, 6, 5), "n_children": 3, "detailed": True},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case))
@pytest.mark.parametrize("seed", range(4))
def test_no_other_solver_finds_a_smaller_objective(case, seed):
    one, _ = random_pass(np.random.default_rng(seed), **case)
    x, record = one.solve_by_rows()
    assert record.status is SolveStatus.OPTIMAL
    assert one.violation(x) <= 1e-7
    assert (x >= 0.0).all()
    peer = one.solve_with_highs(20_000)
    if peer.x is not None:
        of_peer = one.objective(np.maximum(peer.x[: x.size].reshape(x.shape), 0.0))
        assert one.objective(x) <= of_peer * (1 + 1e-6) + 1e-6
    if not case.get("rows"):
        plain, _ = one.solve()
        assert one.objective(x) == pytest.approx(one.objective(plain), rel=1e-8, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_its_certificate_holds_on_many_cells(seed):
    rng = np.random.default_rng(seed)
    one, truth = random_pass(rng, (2, 40, 9, 5), 6)
    assert one.is_wide
    x, record = one.solve()
    assert record.solver == "dual newton"
    assert max(record.primal_residual, record.dual_residual, record.objective_gap) <= 1e-8
    # The objective is convex, so that no feasible point lies below its tangent at the optimum.
    for other in (truth.astype(float), 0.5 * (truth + x)):
        assert one.objective(other) >= one.objective(x) * (1 - 1e-9)


LARGEST_ROOTS = 75_000
"""Cells above which a root that is drawn has 100,000, and 650 rows of queries."""


def drawn_pass(seed):
    """A pass of random sizes, larger with the seed: up to 40 children, 100,000 cells and 650 rows
    of queries, or where one of them asks for every cell, as many more. A third are roots."""
    rng, chosen = drawn_kind(seed)
    return random_pass(rng, **chosen)


def drawn_kind(seed):
    """A generator, and what else `random_pass` takes."""
    rng = np.random.default_rng([35, seed])
    is_root = seed % 3 == 0
    n_children = 1 if is_root else int(rng.integers(1, 41))
    most = 100.0 * (1_000 if is_root else 600 / n_children**0.5) ** (seed % 199 / 198)
    shape = [2, int(min(np.exp(rng.uniform(1.0, np.log(130))), most / 4)), 2]
    if most > 8 * shape[1]:
        shape[2] = int(rng.integers(2, 5))
    while len(shape) < 7 and 2 * np.prod(shape) <= most:
        larger = int(rng.integers(2, 5))
        shape.append(larger if larger * np.prod(shape) <= most else 2)
    shape[-1] *= max(1, min(int(most / np.prod(shape)), 10))
    if is_root and most > LARGEST_ROOTS:
        shape = [2, 125, 4, 5, 2, 5, 2]
    chosen = {
        "shape": tuple(shape),
        "n_children": n_children,
        "is_root": is_root,
        "rows": bool(rng.random() < 0.3),
        "held": bool(rng.random() < 0.7),
        "detailed": bool(rng.random() < 0.2) and n_children * most <= 20_000,
        "impossible": float(rng.choice([0.0, 0.1, 0.5])),
        "lacking": float(rng.choice([0.0, 0.0, 0.3])),
    }
    return rng, chosen


@cache
def by_interior_points():
    """HiGHS by interior points, with a vertex at the end: of the largest programs the simplex takes
    a minute, this two seconds."""
    solver = highs.quiet_solver()
    solver.setOptionValue("solver", "ipm")
    return solver


GAP_OF_INTERIOR_POINTS = 1e-8
"""How near to the optimum HiGHS comes, as a part of its objective."""


def room_below(one, x):
    """The most by which the objective may fall from `x` (c, k) to any feasible histogram.

    The objective f is convex, so that f(x) - f(y) <= f'(x) (x - y); the largest right-hand side
    over all feasible y is a linear program, for HiGHS (the gap of Frank and Wolfe). What its own
    gap, a part of the two sums that are subtracted, may have added is left out.
    """
    slope, asked = np.zeros(x.shape), one.quadratic
    for label, precision in zip(
        asked.labels, asked.weights[asked.profile].T * asked.scale, strict=True
    ):
        row = label - label.min()
        answers = np.zeros((len(x), row.max() + 1))
        answers[:, row] = asked.answers[:, label]
        slope += precision[:, None] * (sum_rows(x, row) - answers)[:, row]
    program = LinearProgram(x.size)
    one._add_constraints(program, np.arange(x.size).reshape(x.shape))
    unbounded = np.full(x.size, np.inf)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(highs, "_solver", by_interior_points)
        found = highs.solve(
            slope.ravel(), program.matrix(), *program.bounds(), np.zeros(x.size), unbounded
        )
    assert found.status is SolveStatus.OPTIMAL
    own_gap = GAP_OF_INTERIOR_POINTS * np.abs(slope.ravel()) @ x.ravel()
    return float(slope.ravel() @ (x.ravel() - found.x) - own_gap)


def objective_by_clarabel(one):
    """The least objective by Clarabel, an interior-point solver; None where it finds none."""
    clarabel = pytest.importorskip("clarabel")
    program, cell, cost, diagonal = one.as_program()
    lower, upper = program.bounds()
    matrix = program.matrix().tocsr()
    is_exact = lower == upper
    is_below, is_above = ~is_exact & np.isfinite(upper), ~is_exact & np.isfinite(lower)
    positive = -sparse.eye_array(program.n_columns, format="csr")[cell.ravel()]
    stacked = sparse.vstack([matrix[is_exact], matrix[is_below], -matrix[is_above], positive])
    right = np.concatenate(
        [upper[is_exact], upper[is_below], -lower[is_above], np.zeros(cell.size)]
    )
    n_exact = int(is_exact.sum())
    cones = [clarabel.ZeroConeT(n_exact), clarabel.NonnegativeConeT(right.size - n_exact)]
    chosen = clarabel.DefaultSettings()
    chosen.verbose, chosen.max_threads = False, 1
    quadratic = sparse.csc_matrix(sparse.diags_array(diagonal))
    solver = clarabel.DefaultSolver(
        quadratic, cost, sparse.csc_matrix(stacked), right, cones, chosen
    )
    solution = solver.solve()
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return None
    x = np.maximum(np.array(solution.x)[: cell.size].reshape(cell.shape), 0.0)
    return one.objective(x) if one.violation(x) <= 1e-3 else None


PARTS = ("diagonal", "proximal", "coarse", "coarse_rows")
"""Matrices of a pass that the active set needs, and wide passes lack."""
CLARABEL_CELLS, ACTIVE_SET_CELLS = 3_000, 3_000
"""Most cells of all children for which Clarabel and the active set are asked as well: the one fills
its factors, the other has matrices of cells by cells."""


@pytest.mark.soak(1)
@pytest.mark.parametrize("seed", range(200))
def test_random_passes_are_optimal_to_their_certificate(seed, monkeypatch):
    one, truth = drawn_pass(seed)
    x, record = one.solve_by_rows()
    assert record.status is SolveStatus.OPTIMAL, record
    assert (
        max(record.primal_residual, record.dual_residual) <= 1e-7 and record.objective_gap <= 1e-6
    ), record
    objective = one.objective(x)
    assert objective <= one.objective(truth.astype(float)) * (1 + 1e-9)
    assert room_below(one, x) <= 1e-6 * (1.0 + objective)
    if x.size <= CLARABEL_CELLS:
        of_peer = objective_by_clarabel(one)
        # Its point may miss constraints by its own tolerance, and so lie a little below.
        assert of_peer is None or objective == pytest.approx(of_peer, rel=2e-4, abs=1e-2)
    if x.size <= ACTIVE_SET_CELLS and not one.problem.rows:
        form = one.quadratic
        parts = zip(PARTS, factor(form.labels, form.starts, form.weights), strict=True)
        failed = replace(record, objective_gap=np.inf)
        monkeypatch.setattr(PassProblem, "solve_by_rows", lambda one: (x, failed))
        small = replace(one, quadratic=form._replace(**dict(parts)), is_wide=False)
        of_peer, peer = small.solve()
        assert peer.solver != record.solver
        assert objective == pytest.approx(one.objective(of_peer), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("seed", [29, 70])
def test_rounds_go_on_until_all_is_still(seed):
    """Of 29 one step of Newton's method does not halve a small gradient, the next one does; of 70,
    with a single child, cells are the parent's at once, but not the sum that bounds keep."""
    one, _ = drawn_pass(seed)
    _, record = one.solve_by_rows()
    assert record.status is SolveStatus.OPTIMAL
    assert record.objective_gap <= 1e-8
    assert record.iterations < 200


def test_of_many_optima_it_takes_the_one_near_the_fill():
    """Against the nearest optimum that a general solver finds, in the chi-square distance."""
    one, _ = random_pass(np.random.default_rng(2), (2, 4, 3), 2)
    x, _ = one.solve_by_rows()
    problem = dual_problem(one.problem, one.quadratic, one.constraints)
    target = problem.fill.T.ravel()
    weight = 1.0 / np.maximum(target, 1e-2 * problem.fill[problem.allowed].mean())
    program = LinearProgram(x.size)
    cell = np.arange(x.size).reshape(x.shape)
    for label in one.quadratic.labels:
        answers = sum_rows(x, label - label.min())
        row = np.arange(len(x))[:, None] * answers.shape[1] + label - label.min()
        program.add_rows(row.ravel(), cell.ravel(), 1.0, answers.ravel(), answers.ravel())
    sums = x.sum(axis=0)
    program.add_rows(np.tile(np.arange(x.shape[1]), len(x)), cell.ravel(), 1.0, sums, sums)
    upper = np.where(problem.allowed.T.ravel(), np.inf, 0.0)
    nearest = highs.solve(
        -weight * target,
        program.matrix(),
        *program.bounds(),
        np.zeros(x.size),
        upper,
        diagonal=weight,
    )

    def distance(flat):
        return float((weight * np.square(flat - target)).sum())

    assert distance(x.ravel()) <= 1.02 * distance(nearest.x) + 1e-6


def test_what_no_histogram_meets_is_not_solved():
    one, _ = random_pass(np.random.default_rng(1), (2, 5, 3), 3)
    group, totals = one.problem.grouped_totals
    beyond = replace(one.problem, grouped_totals=(group, totals + np.array([3, 0, 0])))
    labels = [label - label.min() for label in one.quadratic.labels]
    asked = [
        QueryMeasurement(marginal((2, 5, 3), ()), one.quadratic.answers[:, :1], np.ones(3)),
    ]
    _, record = PassProblem.build(beyond, asked, labels[:1], Pins()).solve_by_rows()
    assert record.primal_residual > least_squares.TOLERANCE


def test_the_same_problem_has_the_same_solution_however_its_cells_are_ordered():
    one, _ = random_pass(np.random.default_rng(3), (2, 9, 4), 4)
    problem = dual_problem(one.problem, one.quadratic, one.constraints)
    backwards = _reordered(problem, np.arange(problem.fill.shape[0])[::-1])
    x, y = dual_newton.solve(problem)[0], dual_newton.solve(backwards)[0]
    np.testing.assert_allclose(x, y[:, ::-1], atol=1e-6)


def _reordered(problem, order):
    """The same problem with its cells in another order."""
    rows = problem.rows
    parts = [slice(rows.start[j], rows.start[j + 1]) for j in order]
    sizes = [part.stop - part.start for part in parts]
    return problem._replace(
        rows=rows._replace(
            start=np.concatenate([[0], np.cumsum(sizes)]),
            row=np.concatenate([rows.row[part] for part in parts]),
            weight=np.concatenate([rows.weight[part] for part in parts]),
        ),
        parent=problem.parent[order],
        allowed=np.ascontiguousarray(problem.allowed[order]),
        **{
            name: np.ascontiguousarray(getattr(problem, name)[order])
            for name in ("fill", "own", "aim")
        },
    )


def test_the_fill_shares_the_parent_and_makes_the_root_independent():
    parent = np.array([6, 0, 3])
    allowed = np.array([[True, True], [True, True], [False, True]])
    shared = proportional_fill(parent, np.array([2, 1]), allowed, [])
    np.testing.assert_allclose(shared, [[4, 2], [0, 0], [0, 3]])
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    margins = [(first, np.array([[8.0, 2.0]])), (second, np.array([[6.0, 4.0]]))]
    raked = proportional_fill(None, np.array([10]), np.ones((4, 1), dtype=bool), margins)
    np.testing.assert_allclose(raked[:, 0], [4.8, 3.2, 1.2, 0.8])


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_product_with_the_matrix_is_the_dense_one(is_shared):
    """R H R' + diagonal, written out, for rows of children and rows that two children share."""
    rng = np.random.default_rng(3)
    k, c, r = 30, 7, 9
    counted = np.arange(r)[:, None] % 3 == rng.integers(0, 3, k)
    weight = counted * rng.normal(size=(r, k))
    start = np.cumsum([0, *counted.sum(axis=0)])
    row, values = np.nonzero(counted.T)[1], weight.T[counted.T]
    place = np.arange(r * c).reshape(r, c)
    place[0] = place[0, [0, 0, 1, 1, 2, 3, 4]]
    place[1, 5:] = -1
    place = np.unique(place, return_inverse=True)[1].reshape(r, c) - 1
    n = int(place.max()) + 1
    nothing = np.zeros(0)
    rows = dual_kernels.Rows(
        start,
        row,
        values,
        place,
        np.zeros(n),
        np.ones(n),
        np.zeros(0, int),
        nothing,
        nothing,
    )
    x = np.maximum(rng.normal(0.2, 1.0, (k, c)), 0.0)
    movable = dual_kernels.movable_cells(x, rng.uniform(0.5, 2.0, (k, c)), is_shared)
    matrix = np.zeros((n, n))
    for j in range(k):
        into = np.zeros((n, c))
        for q, i in product(np.flatnonzero(counted[:, j]), range(c)):
            if place[q, i] >= 0:
                into[place[q, i], i] += weight[q, j]
        ease = movable.ease[j]
        shared = np.outer(ease, ease) / max(ease.sum(), 1e-300) if is_shared else 0.0
        matrix += into @ (np.diag(ease) - shared) @ into.T
    diagonal, y = rng.uniform(1.0, 2.0, n), rng.normal(size=n)
    out = np.empty(n)
    dual_kernels._times(rows, movable, diagonal, y, out)
    np.testing.assert_allclose(out, matrix @ y + diagonal * y, rtol=1e-10, atol=1e-10)
