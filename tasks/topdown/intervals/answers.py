"""Answers of marginal queries: best linear unbiased estimates and their covariances.

In the coordinates of `query_algebra` the covariance of a query's answers is one matrix on the
combinations of all attributes but the longest free one (`Sums`), between answers of the same level
of that one, plus another between answers of any two levels. Variances are read off these without
a matrix on all answers ever being made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.estimation.exact_weights import Sums
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.estimation.spine_estimates import GroupedEstimates

ROUNDING = 1e-9
"""Variance, in squared records, below which it is what rounding left of 0."""


@dataclass(frozen=True, eq=False)
class AnswerCovariances:
    """Covariances of a query's answers for N geounits or areas.

    within, across : (N, U, U), between answers of the classes u and v, of the same level and of
        any two levels.
    unknown_within, unknown_across : (N, U, U) the same of what nothing measured determines.
    """

    sums: Sums
    within: np.ndarray
    across: np.ndarray
    unknown_within: np.ndarray
    unknown_across: np.ndarray

    @classmethod
    def of_components(
        cls, sums: Sums, variance: np.ndarray, diffuse: np.ndarray
    ) -> AnswerCovariances:
        """From the components' matrices (N, 2^kept, n_rows, n_rows)."""
        return cls(sums, *sums.on_classes(variance), *sums.on_classes(diffuse))

    def variances(self) -> np.ndarray:
        """(N, n_answers), exact zeros where an answer is known exactly."""
        found = self._diagonals(self.within + self.across)
        return np.where(found > ROUNDING, found, 0.0)

    def is_known(self) -> np.ndarray:
        """(N, n_answers) whether the measurements determine an answer."""
        return self._diagonals(self.unknown_within + self.unknown_across) <= 1e-9

    def matrices(self) -> np.ndarray:
        """(N, n_answers, n_answers)."""
        place = self.sums.place_of_row
        classes, levels = place // self.sums.n_levels, place % self.sums.n_levels
        pairs = np.ix_(np.arange(len(self.within)), classes, classes)
        is_same = levels[:, None] == levels[None, :]
        return self.across[pairs] + is_same * self.within[pairs]

    def _diagonals(self, matrices: np.ndarray) -> np.ndarray:
        diagonal = np.diagonal(matrices, axis1=1, axis2=2)
        return diagonal[:, self.sums.place_of_row // self.sums.n_levels]


def sums_of(algebra: QueryAlgebra, query: MarginalQuery) -> Sums:
    """The query in the algebra's coordinates.

    Raises InputRefused if it coarsens an attribute that no measured query coarsens.
    """
    for axis in algebra.free:
        size = query.shape[axis]
        if size not in (1, algebra.schema.shape[axis]):
            name = algebra.schema.attributes[axis]
            raise InputRefused(
                f"The query {query.name!r} takes levels of {name} together, which no measured "
                f"query does; ask for a query with {name} itself and add its answers up."
            )
    return Sums(algebra, query)


def answer_covariances(
    level: GroupedEstimates, query: MarginalQuery, rows: np.ndarray
) -> AnswerCovariances:
    """Of the geounits `rows` of a geolevel."""
    sums = sums_of(level.algebra, query)
    variance, diffuse, _ = level.covariances(rows)
    return AnswerCovariances.of_components(
        sums, sums.covariance(variance), sums.covariance(diffuse)
    )


def covariances_of_answers(
    level: GroupedEstimates, query: MarginalQuery, rows: np.ndarray
) -> np.ndarray:
    """(N, n_answers, n_answers) between a geounit's answers."""
    return answer_covariances(level, query, rows).matrices()


def estimates_of(level: GroupedEstimates, query: MarginalQuery, rows: np.ndarray) -> np.ndarray:
    """(N, n_answers) best linear unbiased estimates."""
    cells = np.arange(len(level.algebra.cell_type))
    means = level.at(rows, cells).mean
    return query.answer(level.algebra.histograms(means, cells))


def answers_of(
    level: GroupedEstimates, query: MarginalQuery, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates, variances, and whether the measurements determine them, each (N, n_answers)."""
    found = answer_covariances(level, query, rows)
    return estimates_of(level, query, rows), found.variances(), found.is_known()
