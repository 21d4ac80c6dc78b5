"""Blocks rebuilt from tables: a histogram that has them, and how far another one can be from it.

Reasoning comes before the solver. Bounds of cells are narrowed by single rows (`systems.tighten`),
which alone settles most small blocks; the rest falls apart into components that share no row; all
solutions of a small component are enumerated, and a component of the same shape and bounds in
another block is the same one. The remaining components go to HiGHS: one integer program for a
solution, one for the solution farthest from it.

Constraints by tables on the people of a block: a matrix of whole numbers with bounds on its
rows.

A block is a histogram x >= 0 of integers over the cells of a schema, a published table cell the sum
of some of them. All blocks share the matrix `A`; a release gives each block bounds of its rows,
`lower <= A x <= upper`: equal where the release is exact, an interval for rounding, coarsening and
bounded noise, 0 to `UNBOUNDED` for withheld figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ...census.queries import incidence
from ...solvers.highs import LinearProgram, SolveStatus

UNBOUNDED = 1 << 40
"""Upper bound of a row of which nothing is known."""


class Lines(NamedTuple):
    """Rows or columns of a matrix as compiled code takes them: where each starts, and the place
    across and the entry of everything in it, in 64 bits."""

    start: np.ndarray
    across: np.ndarray
    entry: np.ndarray

    @classmethod
    def of(cls, compressed: sparse.csr_array | sparse.csc_array) -> Lines:
        """Return the lines along the compressed axis: rows of a CSR array, columns of a CSC
        array."""
        parts = compressed.indptr, compressed.indices, compressed.data
        return cls(*(part.astype(np.int64) for part in parts))


@dataclass(frozen=True)
class TableSystem:
    """`matrix` has a row for every published figure and a column for every cell of the schema.

    Its entries are whole numbers: 1 where a table counts the cell, its age where ages are summed.
    Raises ValueError if they are not.
    """

    matrix: sparse.csr_array

    def __post_init__(self) -> None:
        if not np.issubdtype(self.matrix.dtype, np.integer):
            raise ValueError("rows of tables have whole numbers as coefficients")

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.matrix.shape[1]

    @property
    def n_rows(self) -> int:
        """Number of rows of the tables."""
        return self.matrix.shape[0]

    @cached_property
    def lines(self) -> tuple[Lines, Lines]:
        """Rows and columns of the matrix."""
        return rows_and_columns(self.matrix)


def rows_and_columns(matrix: sparse.csr_array) -> tuple[Lines, Lines]:
    """Rows and columns of a matrix."""
    return Lines.of(sparse.csr_array(matrix)), Lines.of(sparse.csc_array(matrix))


def system_of_tables(codes: Sequence[np.ndarray]) -> TableSystem:
    """The system of tables, each given by the table cell of every cell of the schema.

    A code of -1 is outside the table's universe. Rows come table by table, in the order of the
    codes from 0 to the largest. Raises ValueError if the tables' codes differ in length.
    """
    if len({len(code) for code in codes}) != 1:
        raise ValueError("every table must give a code to every cell of the schema")
    rows = [incidence(np.asarray(code), int(np.max(code)) + 1) for code in codes]
    return TableSystem(sparse.csr_array(sparse.vstack(rows)))


@njit(nogil=True, cache=True)
def tighten(
    rows: Lines,
    cells: Lines,
    row_lower: np.ndarray,
    row_upper: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> bool:
    """Narrow bounds of cells, in place, by every row alone until no row narrows any.

    Row r bounds cell c by row_upper[r] less the least of the other cells from above, and by
    row_lower[r] less the most of them from below, over c's coefficient. Returns whether no row was
    found to be impossible; every solution is then within the bounds, which it need not attain.
    """
    n_rows = len(row_lower)
    least, most = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    waiting = np.ones(n_rows, np.bool_)
    queue = np.empty(n_rows, np.int64)
    for row in range(n_rows):
        queue[row] = row
        for place in range(rows.start[row], rows.start[row + 1]):
            cell, entry = rows.across[place], rows.entry[place]
            least[row] += entry * (lower[cell] if entry > 0 else upper[cell])
            most[row] += entry * (upper[cell] if entry > 0 else lower[cell])
    head, length = 0, n_rows
    while length:
        row = queue[head]
        head = (head + 1) % n_rows
        length -= 1
        waiting[row] = False
        if least[row] > row_upper[row] or most[row] < row_lower[row]:
            return False
        for place in range(rows.start[row], rows.start[row + 1]):
            cell, entry = rows.across[place], rows.entry[place]
            if lower[cell] == upper[cell]:
                continue
            if entry > 0:
                largest = row_upper[row] - least[row] + entry * lower[cell]
                smallest = row_lower[row] - most[row] + entry * upper[cell]
            else:
                smallest = -(row_upper[row] - least[row] + entry * upper[cell])
                largest = -(row_lower[row] - most[row] + entry * lower[cell])
            size = abs(entry)
            highest = min(upper[cell], largest // size)
            lowest = max(lower[cell], -((-smallest) // size))
            if highest == upper[cell] and lowest == lower[cell]:
                continue
            if highest < lowest:
                return False
            for at in range(cells.start[cell], cells.start[cell + 1]):
                other = cells.across[at]
                change = cells.entry[at]
                if change > 0:
                    least[other] += change * (lowest - lower[cell])
                    most[other] += change * (highest - upper[cell])
                else:
                    least[other] += change * (highest - upper[cell])
                    most[other] += change * (lowest - lower[cell])
                if not waiting[other]:
                    waiting[other] = True
                    queue[(head + length) % n_rows] = other
                    length += 1
            lower[cell], upper[cell] = lowest, highest
    return True


@njit(nogil=True, cache=True)
def enumerate_solutions(
    rows: Lines,
    cells: Lines,
    row_lower: np.ndarray,
    row_upper: np.ndarray,
    cell_upper: np.ndarray,
    most_solutions: int,
    most_nodes: int,
) -> tuple[np.ndarray, bool]:
    """All integer solutions between 0 and `cell_upper`, and whether they are all.

    Depth first: the cell with the fewest values left takes its lowest, or is above it. Stops at
    `most_solutions` solutions or `most_nodes` nodes of the search.
    """
    n_cells = len(cell_upper)
    found = np.empty((most_solutions, n_cells), np.int64)
    n_found, nodes, depth, deepest = 0, 0, 1, 512
    lowers = np.empty((deepest, n_cells), np.int64)
    uppers = np.empty((deepest, n_cells), np.int64)
    lowers[0], uppers[0] = 0, cell_upper
    while depth:
        depth -= 1
        nodes += 1
        if nodes > most_nodes:
            return found[:n_found], False
        lower, upper = lowers[depth].copy(), uppers[depth].copy()
        if not tighten(rows, cells, row_lower, row_upper, lower, upper):
            continue
        chosen, gap = -1, 0
        for cell in range(n_cells):
            width = upper[cell] - lower[cell]
            if width > 0 and (chosen < 0 or width < gap):
                chosen, gap = cell, width
        if chosen < 0:
            if n_found == most_solutions:
                return found[:n_found], False
            found[n_found] = lower
            n_found += 1
            continue
        if depth + 2 > deepest:
            return found[:n_found], False
        lowers[depth], uppers[depth] = lower, upper
        lowers[depth, chosen] += 1
        lowers[depth + 1], uppers[depth + 1] = lower, upper
        uppers[depth + 1, chosen] = lower[chosen]
        depth += 2
    return found[:n_found], True


def components(matrix: sparse.csr_array, binding: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Number of the component of every cell, by the binding rows that tie free cells; else -1."""
    n_free = int(free.sum())
    row, cell = matrix[binding][:, free].nonzero()
    shape = (n_free + int(binding.sum()),) * 2
    ties = sparse.csr_array((np.ones(len(row)), (n_free + row, cell)), shape=shape)
    number = np.full(len(free), -1)
    number[free] = connected_components(ties, directed=False)[1][:n_free]
    return number


class BlockStatus(IntEnum):
    """Proven status of a block: the tables have one solution, several, none, or it is open.

    OPEN blocks have a solution whose uniqueness is undecided within the limits; for UNSOLVED ones
    no solution was found within them.
    """

    UNIQUE = 0
    SEVERAL = 1
    OPEN = 2
    UNSOLVED = 3
    IMPOSSIBLE = 4


@dataclass(frozen=True)
class Effort:
    """Limits per component: solutions and nodes of the enumeration, nodes and seconds of HiGHS."""

    solutions: int = 500
    enumeration_nodes: int = 5_000
    solver_nodes: int = 200
    seconds: float = 5.0

    @property
    def limits(self) -> dict[str, Any]:
        """The limits of one solve by HiGHS."""
        return {"node_limit": self.solver_nodes, "time_limit": self.seconds}


EFFORT = Effort()
"""Limits by default."""


@dataclass(frozen=True)
class Reconstruction:
    """Blocks rebuilt, in the order of the bounds.

    `block`, `cell` and `count` are the non-zero cells of the solutions. For every block, `status`
    is a `BlockStatus`, and the L1 distance ||x - x'|| from the solution x to the farthest one x' is
    at least `distance_found` (an x' was found) and at most `distance_bound`
    (proven; infinite where nothing is).
    """

    block: np.ndarray
    cell: np.ndarray
    count: np.ndarray
    status: np.ndarray
    distance_found: np.ndarray
    distance_bound: np.ndarray

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.status)

    @property
    def persons(self) -> np.ndarray:
        """Sum of the solution of every block `(n_blocks,)`."""
        return np.bincount(self.block, self.count, minlength=self.n_blocks).astype(np.int64)

    def solution_variability(self) -> tuple[np.ndarray, np.ndarray]:
        """100 ||x - x'||_1 / (2 N) of every block, found and bound [Reconstruction2025].

        0 says that no other solution exists; two solutions differ in at most min(2 v, 100) percent
        of the N persons. Where the tables leave N open, N is that of x. 0 of blocks without people.
        """
        scale = np.where(self.persons > 0, 50 / np.maximum(self.persons, 1), 0)
        bound = scale * np.where(scale > 0, self.distance_bound, 0)
        return scale * self.distance_found, bound


def concatenate_reconstructions(parts: Iterable[Reconstruction]) -> Reconstruction:
    """Reconstructions of successive pieces of blocks as one."""
    pieces = list(parts)
    starts = np.cumsum([0, *(piece.n_blocks for piece in pieces)])
    values = {
        field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
        for field in fields(Reconstruction)
    }
    shifted = [piece.block + start for piece, start in zip(pieces, starts, strict=False)]
    return Reconstruction(**{**values, "block": np.concatenate(shifted)})


@dataclass(frozen=True, eq=False)
class Component:
    """Free cells that binding rows tie together, above the lower bounds of the cells: whole numbers
    x with `lower` <= `matrix` x <= `upper` and 0 <= x <= `widths`.
    """

    matrix: sparse.csr_array
    lower: np.ndarray
    upper: np.ndarray
    widths: np.ndarray

    @property
    def signature(self) -> tuple[bytes, ...]:
        """Shape and bounds, equal for components with the same solutions."""
        own = self.matrix
        parts = (own.indptr, own.indices, own.data, self.lower, self.upper, self.widths)
        return tuple(values.astype(np.int64).tobytes() for values in parts)

    def program(self, n_further: int = 0) -> LinearProgram:
        """The rows as a linear program, with further columns after the cells."""
        program, entries = LinearProgram(len(self.widths) + n_further), self.matrix.tocoo()
        row, column = entries.coords
        program.add_rows(row, column, entries.data, finite(self.lower), finite(self.upper))
        return program

    def check_solution(self, found: np.ndarray | None) -> np.ndarray | None:
        """A solver's result as whole numbers if it satisfies the tables; other columns are last."""
        if found is None:
            return None
        x = np.rint(found[: len(self.widths)]).astype(np.int64)
        totals = self.matrix @ x
        fits = (totals >= self.lower).all() and (totals <= self.upper).all()
        return x if fits and (x >= 0).all() and (x <= self.widths).all() else None


@dataclass(frozen=True)
class _ComponentSolutions:
    """Solutions of a component: `solutions` are all of them if `complete`.

    Else the first is one solution, the last the farthest found, and no other is farther than
    `bound`. No solutions: impossible if `complete`, else unsolved.
    """

    solutions: np.ndarray
    complete: bool
    bound: float


def reconstruct(
    system: TableSystem,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    seed: int = 0,
    effort: Effort = EFFORT,
) -> Reconstruction:
    """A solution of `lower <= A x <= upper` for every block, and the distance of the farthest.

    `lower` and `upper` are integers, shape `(blocks, rows)`; rows of which nothing is known go from
    0 to `UNBOUNDED`. Where all solutions of a component were enumerated, `seed` chooses among them
    uniformly; else it chooses the objective whose optimum is taken. Raises ValueError if the shapes
    differ from the system's.
    """
    if lower.shape != upper.shape or lower.shape[1:] != (system.n_rows,):
        raise ValueError(f"bounds must have shape (blocks, {system.n_rows}), both")
    rebuild = _BlockReconstructor(system, np.random.default_rng(seed), effort)
    n_blocks = len(lower)
    status = np.zeros(n_blocks, dtype=np.int8)
    found, bound = np.zeros(n_blocks), np.zeros(n_blocks)
    cells, counts = [], []
    for block in range(n_blocks):
        bounds = lower[block].astype(np.int64), upper[block].astype(np.int64)
        histogram, status[block], found[block], bound[block] = rebuild.block(*bounds)
        cells.append(np.flatnonzero(histogram))
        counts.append(histogram[cells[-1]])
    blocks = np.repeat(np.arange(n_blocks), [len(part) for part in cells])
    empty = np.zeros(0, dtype=np.int64)
    cell, count = (np.concatenate([empty, *parts]) for parts in (cells, counts))
    return Reconstruction(blocks, cell, count, status, found, bound)


class _BlockReconstructor:
    """Rebuilds one block after the other, and remembers components."""

    def __init__(self, system: TableSystem, draws: np.random.Generator, effort: Effort) -> None:
        self.system, self.draws, self.effort = system, draws, effort
        self.known: dict[tuple[bytes, ...], _ComponentSolutions] = {}
        self.columns = sparse.csc_array(system.matrix)
        self.rises, self.gaps = system.matrix.maximum(0), (-system.matrix).maximum(0)

    def block(
        self, row_lower: np.ndarray, row_upper: np.ndarray
    ) -> tuple[np.ndarray, BlockStatus, float, float]:
        """The histogram of a block, its status, and the distance found and proven."""
        n_cells = self.system.n_cells
        lower, upper = np.zeros(n_cells, np.int64), np.full(n_cells, UNBOUNDED)
        if not tighten(*self.system.lines, row_lower, row_upper, lower, upper):
            return np.zeros(n_cells, np.int64), BlockStatus.IMPOSSIBLE, 0.0, 0.0
        free = upper > lower
        if not free.any():
            return lower, BlockStatus.UNIQUE, 0.0, 0.0
        matrix = self.system.matrix
        needed, allowed = row_lower - matrix @ lower, row_upper - matrix @ lower
        least, most = self.gaps @ (lower - upper), self.rises @ (upper - lower)
        binding = (needed > least) | (allowed < most)
        number = components(matrix, binding, free)
        found = bound = 0.0
        histogram = lower.copy()
        for component in range(int(number.max()) + 1):
            members = np.flatnonzero(number == component)
            part = sparse.csr_array(self.columns[:, members])
            rows = np.flatnonzero(binding & (np.diff(part.indptr) > 0))
            widths = (upper - lower)[members]
            solved = self._solutions(Component(part[rows], needed[rows], allowed[rows], widths))
            if not len(solved.solutions):
                status = BlockStatus.IMPOSSIBLE if solved.complete else BlockStatus.UNSOLVED
                return np.zeros(n_cells, np.int64), status, 0.0, np.inf
            choice = int(self.draws.integers(len(solved.solutions))) if solved.complete else 0
            histogram[members] += solved.solutions[choice]
            farthest = np.abs(solved.solutions - solved.solutions[choice]).sum(axis=1).max()
            found += float(farthest)
            bound += float(farthest) if solved.complete else solved.bound
        status = BlockStatus.OPEN if bound > 0 else BlockStatus.UNIQUE
        return histogram, BlockStatus.SEVERAL if found > 0 else status, found, bound

    def _solutions(self, component: Component) -> _ComponentSolutions:
        """Solutions of a component; one of the same shape and bounds has the same."""
        signature = component.signature
        if signature not in self.known:
            self.known[signature] = self._solve(component)
        return self.known[signature]

    def _solve(self, component: Component) -> _ComponentSolutions:
        solutions, complete = enumerate_solutions(
            *rows_and_columns(component.matrix),
            component.lower,
            component.upper,
            component.widths,
            self.effort.solutions,
            self.effort.enumeration_nodes,
        )
        if complete:
            return _ComponentSolutions(solutions, True, np.inf)
        result = component.program().solve(
            self.draws.random(len(component.widths)),
            upper=finite(component.widths),
            integral=np.ones(len(component.widths), dtype=bool),
            **self.effort.limits,
        )
        if result.status is SolveStatus.INFEASIBLE:
            return _ComponentSolutions(solutions[:0], True, np.inf)
        first = component.check_solution(result.incumbent)
        if first is None:
            return _ComponentSolutions(solutions[:0], False, np.inf)
        other, bound = farthest_solution(component, first, self.effort)
        ends = [first, *([] if other is None else [other])]
        # Solutions that the enumeration left also prove that there are several.
        return _ComponentSolutions(np.vstack([*ends, solutions]), False, bound)


def finite(values: np.ndarray) -> np.ndarray:
    """Bounds as floats, unbounded ones infinite."""
    return np.where(values >= UNBOUNDED // 2, np.inf, values.astype(float))


def farthest_solution(
    component: Component, solution: np.ndarray, effort: Effort
) -> tuple[np.ndarray | None, float]:
    """The solution x' farthest from x in L1, and a proven bound of its distance.

    ||x - x'||_1 = sum x + sum x' - 2 sum min(x, x'), in which a cell with x_c = 0 has no minimum
    and one with x'_c <= x_c always has x'_c. Every other cell of the support gets a variable o_c >=
    min(x_c, x'_c) and a binary b_c that selects one of the two: o_c >= x_c b_c and o_c >= x'_c -
    (width_c - x_c) b_c. Returns None, and the bound, if no other solution was found within the
    limits.
    """
    n_cells, widths = len(solution), component.widths
    inside = np.flatnonzero((solution > 0) & (widths > solution))
    below = (solution > 0) & (widths <= solution)
    n_inside = len(inside)
    program = component.program(2 * n_inside)
    overlap, above = n_cells + np.arange(2 * n_inside).reshape(2, -1)
    row = np.arange(n_inside)
    x = solution[inside].astype(float)
    spare = widths[inside] - x
    endless, ones = np.full(n_inside, np.inf), np.ones(n_inside)
    for columns, values in (
        ([overlap, above], [ones, -x]),
        ([overlap, inside, above], [ones, -ones, spare]),
    ):
        rows = np.tile(row, len(columns))
        program.add_rows(rows, np.concatenate(columns), np.concatenate(values), 0 * x, endless)
    result = program.solve(
        np.concatenate([np.where(below, 1.0, -1.0), 2 * ones, 0 * ones]),
        upper=np.concatenate([finite(widths), x, ones]),
        integral=np.repeat([True, False, True], [n_cells, n_inside, n_inside]),
        **effort.limits,
    )
    people = float(solution.sum())
    # Distances are integers; the bound of the search may lack a rounding error.
    bound = (
        max(0.0, np.floor(people - result.bound + 1e-6)) if np.isfinite(result.bound) else np.inf
    )
    other = component.check_solution(result.incumbent)
    if other is None:
        return None, bound
    return other, max(bound, float(np.abs(other - solution).sum()))
