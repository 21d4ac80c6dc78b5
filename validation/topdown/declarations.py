"""What the declaration of a census promises of a universe's release, in plain facts.

Areas are in the order of their geocodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

EXACT, BOUNDS = "equality_constraints_hold", "bounds_hold"
HELD, RELATIONS = "held_answers_agree", "relations_hold"
ON_ROWS = (EXACT, BOUNDS, HELD, RELATIONS)
"""Checks of what is declared that are made on the released rows."""


@dataclass(frozen=True, eq=False)
class ExpectedUnits:
    """The units of an exact answer: `number` (n_areas,) of each area's, and the paths of all.

    listed : the geolevel at which all units stand under their paths, and the name of the sums of
        those above it; None where a spine decides.
    """

    number: np.ndarray
    path: np.ndarray
    listed: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class ExpectedConstraint:
    """A constraint by its name in files: sign, numbers of a value, and its units; without units
    every geounit has it.
    """

    name: str
    sign: str
    n_rows: int
    units: ExpectedUnits | None = None


@dataclass(frozen=True, eq=False)
class ExpectedAnswers:
    """Exact answers to a query: `unit` (n_areas,) numbers each area's unit, `answers` are (n_units,
    n_rows).
    """

    query: str
    unit: np.ndarray
    answers: np.ndarray


@dataclass(frozen=True, eq=False)
class ExpectedBound:
    """Bounds on the rows of a query, on the cells `inside` (n_cells,), in every area: `lower` and
    `upper` are (n_areas, n_rows), None for no bound.
    """

    name: str
    query: str
    inside: np.ndarray
    lower: np.ndarray | None
    upper: np.ndarray | None


@dataclass(frozen=True, eq=False)
class ExpectedTie:
    """Answers to a query that are those of another universe of the run.

    inside : (n_cells,) cells that the query counts. row : (n_cells of the other universe,) the
    answer that counts each of its cells, -1 for none.
    """

    query: str
    inside: np.ndarray
    universe: str
    row: np.ndarray


@dataclass(frozen=True, eq=False)
class ExpectedDeclarations:
    """What a declaration promises of a universe's release.

    held : by name, a query, the cells (n_cells,) that it counts, and the answers (n_areas, n_rows)
        that every area has, those that are not zero.
    relations : by name, a sign, and weights (n_cells,) of each universe.
    constraints : what files of constraints have.
    tied : by name, answers that are those of another universe of the run.
    """

    exact: Mapping[str, ExpectedAnswers] = field(default_factory=dict)
    bounds: tuple[ExpectedBound, ...] = ()
    held: Mapping[str, tuple[str, np.ndarray, sparse.csr_array]] = field(default_factory=dict)
    relations: Mapping[str, tuple[str, Mapping[str, np.ndarray]]] = field(default_factory=dict)
    constraints: tuple[ExpectedConstraint, ...] = ()
    tied: Mapping[str, ExpectedTie] = field(default_factory=dict)

    @property
    def checked(self) -> dict[str, bool]:
        """Of each check, whether anything is declared that it is made of: what is not holds for
        nothing, and a check that says otherwise misleads.
        """
        return {
            "constraints_are_complete": bool(self.constraints),
            EXACT: bool(self.exact),
            BOUNDS: bool(self.bounds),
            HELD: bool(self.held or self.tied),
            RELATIONS: bool(self.relations),
        }
