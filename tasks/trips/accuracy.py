"""Errors of released trips against the confidential truth; they are confidential too.

For every level: the largest and the mean absolute error, the share of released nodes that are empty
in truth (false discovery rate) and the share of nodes with trips that were not released (false
negative rate), in percent, and the bound of [InfTDA2024], Theorem 4 or Proposition 1, where one
holds. For estimates that combine all levels also their bias: the mean error of the least-squares
estimates of the measured nodes, before the integer pass, caused by selecting nodes by noisy counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..products.budget import Cost
from ..products.comparison import write_errors
from ..runs.directory import RunDirectory
from .estimation.estimate import measured_tree
from .ingest.files import read_plan, read_truth
from .plan import Plan as TreePlan
from .release import proposition_1, released_level, theorem_4
from .settings import FULL_INFORMATION, TripsSettings
from .tree import NodeCounts, TrueTree

ACCURACY = "trips_accuracy.parquet"
"""Errors of a run, in its confidential folder."""


def write_accuracy(run: RunDirectory, settings: TripsSettings) -> None:
    """Write the errors of a released run into the confidential folder."""
    plan, truth = read_plan(run), read_truth(run)
    rows = []
    bounds = {
        "theorem_4_bound": theorem_4(plan),
        "proposition_1_bound": proposition_1(plan, truth.leaves.total),
    }
    biases = selection_bias(run, plan, truth) if plan.mechanism == FULL_INFORMATION else None
    for level in range(plan.tree.depth + 1):
        released = released_level(run.release, plan.tree, level)
        row = {"level": level, "areas": plan.tree.level_name(level)}
        row |= level_errors(truth.levels[level], released)
        row |= {name: None if own is None else own[level] for name, own in bounds.items()}
        row["bias"] = None if biases is None else biases[level]
        rows.append(row)
    write_errors(run, pa.Table.from_pylist(rows), ACCURACY)


def level_errors(truth: NodeCounts, released: NodeCounts) -> dict[str, float]:
    """Errors of one level; nodes that are empty in both count for nothing."""
    keys = np.union1d(truth.keys, released.keys)
    true, found = truth.counts_of(keys), released.ascending.counts_of(keys)
    error = np.abs(found - true)
    return {
        "max_absolute_error": int(error.max(initial=0)),
        "mean_absolute_error": float(error.mean()) if keys.size else 0.0,
        "false_discovery_percent": _percent((true == 0) & (found > 0), found > 0),
        "false_negative_percent": _percent((true > 0) & (found <= 0), true > 0),
    }


def selection_bias(run: RunDirectory, plan: TreePlan, truth: TrueTree) -> list[float]:
    """Mean error per level of the least-squares estimates of all measured nodes."""
    measured = measured_tree(run, plan)
    errors = [
        estimates - level.counts_of(keys)
        for estimates, level, keys in zip(
            measured.combined(), truth.levels, measured.keys, strict=True
        )
    ]
    return [round(float(error.mean()), 6) if error.size else 0.0 for error in errors]


def _percent(part: np.ndarray, whole: np.ndarray) -> float:
    return 100.0 * int(part.sum()) / int(whole.sum()) if whole.any() else 0.0


def facts_of_run(run: RunDirectory, settings: TripsSettings) -> dict[str, str]:
    """Description of a run in words."""
    plan = read_plan(run)
    loss = Cost(plan.universe(settings.report_delta)).in_words
    return {"mechanism": plan.mechanism, "loss": loss}
