"""Small random spines, and their variances by one dense matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from spineflow.geography.levels import Geolevel, Spine, bypass
from spineflow.geography.rules import GroupRules
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.solvers.split import GeounitClasses
from spineflow.tasks.topdown.design.problem import MeasuredSpine
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra

SCHEMA = CENSUS.schema("persons", ("hhgq", "votingage", "hispanic"))
TYPE_OF_CELL = SCHEMA.levels("hhgq")
FORBIDDEN = SCHEMA.cells_where({"hhgq": (3,), "votingage": (0,)})
QUERIES = ("total", "hhgq", "votingage * hispanic", "detailed")
NAMES = ("US", "State", "County", "Block")


@dataclass(frozen=True)
class Small:
    """A spine under an allocation, by classes and as it is.

    type_is_possible : (n_blocks, T). state : (n_states,) of the geolevel State, None without
    exact totals.
    """

    spine: Spine
    type_is_possible: np.ndarray
    state: np.ndarray | None
    blocks_exact: bool
    algebra: QueryAlgebra

    @property
    def shares(self) -> dict[str, Fraction]:
        return dict.fromkeys(self.spine.names, Fraction(1, len(self.spine.names)))

    @property
    def measured(self) -> MeasuredSpine:
        cells = self.type_is_possible[:, self.algebra.cell_type] & self.algebra.is_possible
        known = {} if self.state is None else {"State": self.state}
        if self.blocks_exact:
            known["Block"] = np.arange(self.spine.n_blocks)
        return MeasuredSpine.build(self.spine, self.shares, cells, known=known)

    @property
    def kinds(self) -> GeounitClasses:
        return self.measured.kinds

    @property
    def grams(self) -> np.ndarray:
        cells = np.arange(len(self.algebra.cell_type))
        return np.array([self.algebra.gram(marginal_query(SCHEMA, q), cells) for q in QUERIES])

    def at(self, geolevel_shares: list[Fraction]) -> Spine:
        """The same spine with other shares of the geolevels, as the bypass moves them."""
        plain = [
            replace(level, plb_shares=(share,), plb_share_code=np.zeros(len(level), np.int32))
            for level, share in zip(self.spine.geolevels, geolevel_shares, strict=True)
        ]
        if any(level.bypassed.any() for level in self.spine.geolevels):
            return replace(self.spine, geolevels=bypass(tuple(plain), GroupRules(), is_pure=False))
        return replace(self.spine, geolevels=tuple(plain))

    def informations(self, geolevel_shares: list[Fraction]) -> np.ndarray:
        """(L, Q, m, m) information about all m cells of all blocks that a query of a geolevel
        has when the geolevel spends nothing else, for a rho of 1."""
        spine = self.at(geolevel_shares)
        found = []
        for level in spine.geolevels:
            above = np.zeros((len(level), spine.n_blocks))
            above[spine.ancestors(level.name), np.arange(spine.n_blocks)] = 1.0
            weight = above.T @ (level.shares()[:, None] * above)
            queries = (marginal_query(SCHEMA, name).matrix.toarray() for name in QUERIES)
            found.append([np.kron(weight, q.T @ q.astype(float)) for q in queries])
        return np.array(found)

    @property
    def free(self) -> np.ndarray:
        """(m, f) basis of what is not known exactly of all cells of all blocks."""
        n_blocks, n_cells = self.spine.n_blocks, SCHEMA.n_cells
        possible = (self.type_is_possible[:, TYPE_OF_CELL] & ~FORBIDDEN).ravel()
        basis = np.eye(n_blocks * n_cells)[:, possible]
        exact = []
        if self.blocks_exact:
            exact += [np.kron(row, np.ones(n_cells)) for row in np.eye(n_blocks)]
        if self.state is not None:
            of_block = self.state[self.spine.ancestors("State")]
            exact += [
                np.kron(of_block == number, np.ones(n_cells)) for number in np.unique(of_block)
            ]
        if exact:
            _, values, vectors = np.linalg.svd(np.array(exact, dtype=float) @ basis)
            basis = basis @ vectors[(values > 1e-9).sum() :].T
        return basis

    def covariance(self, p: np.ndarray) -> np.ndarray:
        """(m, m) of all cells of all blocks, for an allocation (L, Q) and a rho of 1."""
        of_geolevel = [Fraction(str(share)) for share in p.sum(axis=1).tolist()]
        shares = p / p.sum(axis=1, keepdims=True)
        information = np.tensordot(shares, self.informations(of_geolevel), axes=2)
        return self.free @ np.linalg.solve(self.free.T @ information @ self.free, self.free.T)


def small(
    seed: int, *, bypassed: bool = False, states: bool = False, blocks_exact: bool = False
) -> Small:
    """A random spine of four geolevels."""
    rng = np.random.default_rng(seed)
    parents = [np.array([-1])]
    for most in (2, 2, 3):
        n_children = rng.integers(1, most + 1, len(parents[-1]))
        if bypassed:
            n_children[rng.random(len(n_children)) < 0.4] = 1
        parents.append(np.repeat(np.arange(len(n_children)), n_children))
    share = Fraction(1, len(parents))
    levels = []
    codes = np.array([""], dtype=object)
    for name, parent in zip(NAMES, parents, strict=True):
        rank = np.arange(len(parent)) - np.searchsorted(parent, parent)
        codes = np.array(
            [codes[max(p, 0)] + str(r) for p, r in zip(parent, rank, strict=True)], dtype=object
        )
        n_blocks = np.bincount(ancestors(parents, name), minlength=len(parent))
        nothing = np.zeros(len(parent), dtype=bool)
        code = np.zeros(len(parent), dtype=np.int32)
        levels.append(Geolevel(name, codes, parent, (share,), code, nothing, n_blocks))
    geolevels = bypass(tuple(levels), GroupRules(), is_pure=False) if bypassed else tuple(levels)
    n_blocks = len(parents[-1])
    spine = Spine("conventional", geolevels, codes, np.arange(n_blocks))
    type_is_possible = rng.random((n_blocks, 8)) < 0.25
    type_is_possible[:, 0] |= ~type_is_possible.any(axis=1)
    state = None
    if states:
        state = np.unique(rng.integers(0, 2, len(parents[1])), return_inverse=True)[1]
    queries = [marginal_query(SCHEMA, name) for name in QUERIES]
    algebra = QueryAlgebra.build(SCHEMA, queries, TYPE_OF_CELL, FORBIDDEN)
    return Small(spine, type_is_possible, state, blocks_exact, algebra)


def ancestors(parents: list[np.ndarray], name: str) -> np.ndarray:
    """Position at a geolevel of the ancestor of each block."""
    position = np.arange(len(parents[-1]))
    for parent in reversed(parents[NAMES.index(name) + 1 :]):
        position = parent[position]
    return position


def random_allocation(seed: int) -> np.ndarray:
    """Positive numbers (L, Q) of three decimals, of sum 1 but for rounding."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.2, 1.0, (len(NAMES), len(QUERIES)))
    return np.round(p / p.sum(), 4)
