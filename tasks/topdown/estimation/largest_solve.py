"""Memory, time and solver of a run's largest solve, reported before anything is charged.

Nothing here reads a record. The root has all cells that are no structural zeros, and one child.
A family below it has at most as many cells, at most as many as its parent has records, and as many
children as in the spine; a parent's number of records is not public, except for invariants.
So the root's size is known and refused where it cannot fit, and the sizes below are bounds,
reported to users as warnings.

**Memory.** With k cells, c children, q queries in the pass, all in numbers of eight bytes, a solve
takes about

    k (PER_CELL + PER_QUERY q) + c k PER_CHILD + the matrices of its solver,

these being blocks of rows by rows for every child under `dual_newton`, at most BLOCK_ENTRIES in
all, and cells by cells for every child under the active set, which full information always takes
where there are no relations, with WEIGHED more of them. **Time** is of order of magnitude
alone, since iterations depend on the noise. The constants are fitted to synthetic passes of 2,400
to 710,400 cells and 1 to 40 children.

Settings are refused here before any input is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ....geography.levels import Spine
from ...census.queries import MarginalQuery, Schema, marginal_query
from ...pages.document import Block
from ...products.product import Caution
from ...runs.errors import InputRefused, refuse_errors
from ...tables.geometry import refuse_unfit_geometry
from ..settings import TopdownSettings
from ..spine.build import refuse_no_spine
from ..workload.costs import refuse_wide_noise
from ..workload.implied_types import possible_cells
from .quadratic import BLOCK_ENTRIES, MANY, is_wide

PER_CELL, PER_QUERY, PER_CHILD = 20.0, 10.0, 30.0
"""Numbers of eight bytes in memory for a cell, a cell and query, and a cell and child."""
ROOT_SECONDS, SECONDS = 3e-6, 2e-5
"""For a cell, child and query: of the root, and of families whose cells siblings share."""
DENSE_SECONDS = 1e-10
"""The same of the active set, for a child and a cell cubed."""
WEIGHED = 18
"""Matrices of cells by cells of a pass that `full_information` weighs by inverse covariances."""
SURE = 0.5
"""Fraction of the stated memory that a solve is certain to take."""
MOST_MASKED = 2 * 10**7
"""Cells above which structural zeros are not counted cell by cell."""
CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")
"""File with a container's memory limit, if any."""


@dataclass(frozen=True)
class SolveSize:
    """The size of one solve.

    geolevel : of the children. cells, children, rows : at most; rows are of the queries that the
    pass measures. is_known : whether the size is exact, as at the root. solver : as in
    `parent.SolveRecord`. n_bytes, seconds : approximate upper bounds.
    """

    geolevel: str
    cells: int
    children: int
    rows: int = 0
    is_known: bool = False
    solver: str = "none"
    n_bytes: int = 0
    seconds: float = 0.0

    def sentence(self) -> str:
        """The size in words.

        >>> SolveSize("town", 71_040, 12, 200, False, "dual newton", 6 * 10**8, 9.6).sentence()
        'at most 71,040 cells of 12 children at town, 200 rows of queries: up to about 0.6 GB and \
10 s by dual newton'
        """
        children = "1 child" if self.children == 1 else f"{self.children:,} children"
        most, about = ("", "about") if self.is_known else ("at most ", "up to about")
        return (
            f"{most}{self.cells:,} cells of {children} at {self.geolevel}, {self.rows:,} rows of "
            f"queries: {about} {gigabytes(self.n_bytes)} and {_seconds(self.seconds)} by "
            f"{self.solver}"
        )


def gigabytes(n_bytes: float) -> str:
    """Bytes in human-readable form: 0.1 GB and more."""
    size = max(n_bytes / 1e9, 0.1)
    return f"{size:.1f} GB" if size < 10 else f"{size:,.0f} GB"


def _seconds(seconds: float) -> str:
    """Seconds or hours, to one significant figure."""
    if seconds >= 3 * 3600:
        return f"{float(f'{seconds / 3600:.1g}'):,.0f} hours"
    return f"{max(float(f'{seconds:.1g}'), 1.0):,.0f} s"


def memory_of_machine() -> int:
    """Bytes of memory available to processes of this machine or container, without swap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CONTROL_GROUP.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def refuse_large_solves(settings: TopdownSettings) -> None:
    """Raise InputRefused for a universe whose root surely exceeds this machine's memory.

    On Dask's workers, which may be other machines, nothing is refused.
    """
    if settings.run.runner == "dask":
        return
    memory = memory_of_machine()
    for universe in settings.run.universes:
        size = largest_solve(settings, universe)
        least = SURE * size.n_bytes
        if size.is_known and least > memory:
            raise InputRefused(
                f"{universe} cannot be estimated here. Its largest solve has {size.sentence()}, "
                f"surely above {gigabytes(least)}; this machine has {gigabytes(memory)}. "
                f"{remedy(universe, size)} Nothing has been charged."
            )


def remedy(universe: str, size: SolveSize) -> str:
    """Sentence of advice on reducing a universe's largest solve."""
    below = "" if size.is_known else "interleave passes, have fewer children of one parent, "
    if size.solver == "active set" and size.cells > MANY:
        below += "choose the estimator topdown, "
    return (
        f"Give attributes of {universe} fewer levels or leave some out, declare impossible cells "
        f"as structural zeros, {below}or run on a machine with more memory."
    )


def largest_solve(
    settings: TopdownSettings, universe: str, spine: Spine | None = None, records: int | None = None
) -> SolveSize:
    """The solve of a universe that takes most memory: of the root, and of families of a spine.

    Where invariants give the universe's number of `records`, a family has at most as many cells.
    Without a spine the first solve alone is known.
    """
    cells, budget = fewest_cells(settings, universe), settings.budget_of(universe)
    census, shares = settings.compiled_census, budget.geolevel_shares
    # Measured or not, a declared root is above the geolevels that have a share.
    root = next(iter(shares if settings.has_block_rules else census.geolevels))
    families = [(root, cells, 1, True)]
    if settings.blocks_only:
        families = [([*shares][-1], cells, 1, not census.universes[universe].bounds)]
    elif spine is not None:
        below = cells if records is None else min(cells, records)
        families = [(spine.names[0], cells, len(spine.geolevels[0]), True)]
        families += [
            (level.name, below, n, False)
            for level in spine.geolevels[1:]
            if (n := int(np.bincount(level.parent).max(initial=0))) > 1
        ]
    sizes = [
        _largest_pass(settings, universe, SolveSize(name, k, n, is_known=is_known))
        for place, (name, k, n, is_known) in enumerate(families)
        if budget.query_shares.get(name) or place == 0
    ]
    return max(sizes, key=lambda size: size.n_bytes)


def fewest_cells(settings: TopdownSettings, universe: str) -> int:
    """Number of cells that are no structural zeros; a lower bound if there are very many."""
    schema = settings.schema_of(universe)
    if schema.n_cells <= MOST_MASKED:
        return int(possible_cells(settings, universe).size)
    return max(0, schema.n_cells - sum(_box(schema, z.where) for z in settings.zeros_of(universe)))


def _box(schema: Schema, where: dict) -> int:
    """Number of the cells whose attributes take given levels."""
    chosen = schema.positions(where)
    sizes = zip(schema.attributes, schema.shape, strict=True)
    return math.prod(len(chosen[name]) if name in chosen else size for name, size in sizes)


def _largest_pass(settings: TopdownSettings, universe: str, family: SolveSize) -> SolveSize:
    """The pass of a family that takes most memory; all but the last are solved on classes."""
    schema, geolevel = settings.schema_of(universe), family.geolevel
    measured = settings.budget_of(universe).query_shares.get(geolevel)
    if not measured:
        return family
    passes = settings.passes_of(universe, geolevel)
    # Only passes that interleave are as many of the least squares as of the rounder.
    chains = passes.rounder if passes.interleaved else [()] * len(passes.least_squares)
    asked = [
        ([marginal_query(schema, name) for name in names if measured.get(name)], chain)
        for names, chain in zip(passes.least_squares, chains, strict=True)
    ]
    asked = [(queries, chain) for queries, chain in asked if queries]
    has_rows = bool(settings.compiled_census.universes[universe].relations)
    is_last = geolevel == list(settings.budget_of(universe).geolevel_shares)[-1]
    is_weighed = settings.run.estimator == "full_information" and not has_rows and not is_last
    sizes, so_far, children = [], list[MarginalQuery](), family.children
    for number, (queries, chain) in enumerate(asked, 1):
        so_far += [*queries, *(marginal_query(schema, name) for name in chain)]
        k = family.cells if number == len(asked) else min(family.cells, n_classes(so_far))
        rows = [min(query.n_rows, k) for query in queries]
        numbers = k * (PER_CELL + PER_QUERY * len(queries)) + k * children * PER_CHILD
        # The solver that `least_squares.PassProblem` chooses for the pass.
        if not is_weighed and (has_rows or is_wide(k, max(rows))):
            solver = "dual newton"
            numbers += min(children * min(sum(rows), k) ** 2, BLOCK_ENTRIES)
            seconds = ROOT_SECONDS if family.is_known else SECONDS
            seconds *= k * children * len(queries)
        else:
            solver = "active set"
            numbers += children * k**2 + is_weighed * WEIGHED * k**2
            seconds = DENSE_SECONDS * children * k**3
        n_bytes, n_rows = int(8 * numbers), sum(rows)
        one = replace(family, cells=k, rows=n_rows, n_bytes=n_bytes)
        sizes.append(replace(one, solver=solver, seconds=seconds))
    return max(sizes, key=lambda size: size.n_bytes, default=family)


def n_classes(queries: Sequence[MarginalQuery]) -> int:
    """Number of classes of cells that some query distinguishes: a product over the attributes."""
    of_attributes = zip(*(query.factors for query in queries), strict=True)
    return math.prod(len(set(zip(*factors, strict=True))) for factors in of_attributes)


def size_in_words(universe: str, size: SolveSize) -> Iterator[Block]:
    """The largest solve of a universe in words, with a warning where it may not fit."""
    yield f"{universe}: largest solve {size.sentence()}."
    memory = memory_of_machine()
    if size.n_bytes > memory:
        yield Caution(
            f"the largest solve of {universe} may take {gigabytes(size.n_bytes)}, and this machine "
            f"has {gigabytes(memory)}. {remedy(universe, size)}"
        )


def refuse_settings(settings: TopdownSettings) -> None:
    """Refuse settings without a valid spine or estimator, noise too wide to compute with, solves
    larger than memory, and unreadable geometry.

    Raises InputRefused.
    """
    refuse_no_spine(settings)
    if settings.run.estimator != "topdown":  # That estimates all, and to load others takes long.
        from .steps import estimator_of

        estimator_of(settings).refuse(settings)
    for universe in settings.run.universes:
        with refuse_errors(f"budget.{universe}."):
            refuse_wide_noise(settings.budget_of(universe))
    refuse_large_solves(settings)
    refuse_unfit_geometry(settings.input.geometry)
    if settings.release.sdmx is not None and find_spec("sdmx") is None:
        raise InputRefused("release.sdmx needs sdmx1: install spineflow[sdmx], or take it out.")
