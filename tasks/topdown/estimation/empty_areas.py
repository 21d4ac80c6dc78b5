"""Finest areas that stay empty: what noisy answers and public facts say, and moves that follow it.

Few noisy answers tell an empty area from a small one, and rounding fills most empty ones. With
`ghosts = "avoid"` they decide together with public facts. Let the parent of an area i have N[j]
records in cell j, and bounds allow i at most u[i, T] of j's type T, such as 99,999 for every
housing unit. Then i would have

    e[i, j] = N[j] u[i, T] / sum_i u[i, T],    m[i] = sum_j e[i, j]

records, an equal share where there is no bound. If they are composed as e is, the answers M_q[i] to
the measured queries Q_q give the best linear estimate of their number,

    n^[i] = v[i] sum_q w[i, q] p_q' M_q[i],    1 / v[i] = sum_q w[i, q] |p_q|^2,

p_q being Q_q e[i] / m[i], and 1 / w the variances. With a Poisson number of mean m[i], and n^[i]
normal about it,

    P(n)  ~  exp(-m[i]) m[i]^n / n!  exp(-(n^[i] - n)^2 / (2 v[i])),    n = 0, 1, 2, ...

Where P(0) is at least `LEAST` the area is emptied: its records move, each to the sibling where the
distance F of `siblings` rises least. Where it is less and the estimate left the area empty, the
record enters for which F rises least. Areas that must have records, or where `MOST` or more are
expected, stay as they are; so do records that cannot move. Unlike a constraint this is a
preference.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .problem import NO_BOUND, SiblingProblem
from .siblings import Siblings

LEAST = 0.2
"""Probability from which an area is taken to be empty. A larger one leaves fewer inhabited areas
empty, and more empty ones filled; on the sample state this one has fewer of both than rounding."""

MOST = 8.0
"""Expected records from which areas stay as they are; without measurements P(0) is 1/3,000."""


def expected_counts(problem: SiblingProblem) -> np.ndarray:
    """Counts `(c, k)` that the children would have by their parent's and by their bounds."""
    upper = problem.upper.astype(np.float64)
    upper[:, (problem.upper >= NO_BOUND).any(axis=0)] = 1.0
    share = upper / np.maximum(upper.sum(axis=0), 1.0)
    return share[:, problem.type_of_cell] * problem.parent_counts


def probability_of_none(mean: np.ndarray, noisy: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """P(0) of the module's docstring, `(n,)`, by m, n^ and v, which may be infinite."""
    n = np.arange(int(mean.max(initial=0.0)) + 60)
    logs = n * np.log(mean)[:, None] - gammaln(n + 1)
    logs -= (noisy[:, None] - n) ** 2 / (2 * variance[:, None])
    return 1.0 / np.exp(np.minimum(logs - logs[:, :1], 700.0)).sum(axis=1)


def avoid_ghosts(siblings: Siblings, scale: float = 1.0) -> None:
    """Empty and fill areas by the rule of the module's docstring, in place; the measurements'
    precisions, times `scale`, are the inverses of the variances.
    """
    problem = siblings.problem
    group = problem.group_of_child
    is_fixed = group is not None and np.unique(group).size == group.size
    if problem.parent_counts is None or is_fixed:
        return
    expected = expected_counts(problem)
    mean = expected.sum(axis=1)
    can_be_empty = (mean > 0) & (mean < MOST) & ~problem.lower.any(axis=1)
    is_empty, rows = np.zeros(len(mean), dtype=bool), np.flatnonzero(can_be_empty)
    if not rows.size:
        return
    noisy, variance = siblings.totals(rows, expected[rows] / mean[rows, None])
    chance = probability_of_none(mean[rows], noisy, variance / scale)
    is_empty[rows] = chance >= LEAST
    for child in rows[np.argsort(-chance, kind="stable")].tolist():
        if is_empty[child]:
            siblings.empty(child, ~is_empty)
    for child in np.flatnonzero(can_be_empty & ~is_empty & ~siblings.x.any(axis=1)).tolist():
        siblings.fill(child)
