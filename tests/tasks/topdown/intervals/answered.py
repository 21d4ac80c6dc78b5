"""What is known of all answers to a query, as tests compare it."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.topdown.estimation.spine_estimates import GroupedEstimates
from spineflow.tasks.topdown.intervals.answers import (
    AnswerCovariances,
    ProductAnswers,
    covariances_of,
    estimates_of,
)


def answers_of(
    level: GroupedEstimates, query: MarginalQuery, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates, variances, and whether the measurements determine them, each (N, n_answers)."""
    answers = ProductAnswers.of(level.algebra, query.matrix)
    found = covariances_of(level, answers, rows)
    return estimates_of(level, answers, rows), found.variances(), found.is_known()


def matrices(found: AnswerCovariances) -> np.ndarray:
    """(N, a, a) covariances between all answers of a geounit or area."""
    n = found.answers.n_answers
    pairs = np.indices((n, n)).reshape(2, -1)
    return found.covariance((0, pairs[0]), (0, pairs[1])).reshape(-1, n, n)
