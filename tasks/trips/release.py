"""The released tables of trips, bounds of their errors, and the public report.

The tables follow from the leaves' estimates:

    trips.parquet, trips.csv    the input's place columns and count; non-zero rows
    range_queries.parquet, .csv level, the areas at the level's depths by dimension, and count

Rows are in the order of the areas. Range queries are sums of the released rows, so they agree
with the table by construction; a mechanism that measures leaves alone has no other counts above.

Expected errors of a release are simulated with the release as truth: the mechanism, run with fresh
noise on the released counts, errs by about as much as the release itself. This reads nothing
confidential and spends nothing.

*Bounds* of errors are Theorem 4 and Proposition 1 of [InfTDA2024], with explicit constants.

*Theorem 4*, for a top-down Chebyshev release. With noise Z at level k and a parent's count wrong by
e, a child is wrong by at most 2 max |Z| + e: the true children, each shifted by at most e to add up
to that count, are within max |Z| + e of the noisy ones, so the projection is as well. Hence, with
probability at least 1 - beta, every node of level l is wrong by at most

    e_0 + 2 sum over k = 1..l of sigma_k sqrt(2 log(2 (l + r) n_k / beta)),

by P(|Z| >= t) <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian, with n_k nodes at level k.
If the root is measured, r = 1 and e_0 = sigma_0 sqrt(2 log(2 (l + 1) / beta)), otherwise both are
0. Levels of only children are not measured and add nothing; l then counts the others.

*Proposition 1*, for mechanisms that measure leaves alone, with n_l nodes at level l and at most L_l
leaves below each. The error of a node under the Gaussian mechanism is a sum of at most L_l
independent discrete Gaussians, each subgaussian with its own sigma^2. So with probability at least
1 - beta every node of level l is wrong by at most

    sigma sqrt(2 L_l log(2 n_l / beta)).

The stability histogram errs on occupied leaves alone, N at most: all leaves, or as many as there
are trips. With k the least integer for which N P(|Z| >= k) <= beta, all |Z| are below k with
probability at least 1 - beta. A listed leaf is then wrong by at most k - 1. A leaf below the
threshold t is not listed, and has at most t + k - 2 trips. Hence the bound is
min(L_l, N) (t + k - 2).

*False cells* have trips in the release and none in truth. An empty measured cell has noise alone,
which is as often v as -v. Cells with trips seldom have a noisy count below 0, so that among cells
measured at v > 0 about as many are empty as were measured at -v. A released cell measured at v is
therefore false with a probability of about n(-v) / n(v), where n counts the measured cells; a cell
measured at v <= 0 is assumed to be false.

A noisy count cannot distinguish a cell without trips from one with far fewer than the standard
deviation of the noise. Both count as false, so the estimate is an upper one, near the truth where
cells have no trips or many. Only noisy counts and the releases from them are read.

*Errors against the confidential truth* are confidential too; the report shows them for inputs that
are not confidential, and only for those. For every level: the largest and the mean absolute error,
the share of released nodes that are empty in truth (false discovery rate) and the share of nodes
with trips that were not released (false negative rate), in percent, and the bound that holds. For
estimates that combine all levels also their bias: the mean error of the least-squares estimates of
the measured nodes, before the integer pass, caused by selecting nodes by noisy counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ..pages.document import Document, Table
from ..products.budget import Cost
from ..products.comparison import errors_table, write_errors
from ..products.plan import Plan
from ..products.reports import first_rows, report_document
from ..runs.directory import RunDirectory
from ..runs.files import NOT_PRIVATE, replacing
from ..runs.stamps import stamp_at
from .estimation.estimate import measured_tree
from .measurement import ROWS_PER_GROUP, node_columns, node_keys, read_nodes
from .plan import Plan as TreePlan
from .plan import estimates_file, largest_leaf_counts, measured_file, read_plan
from .settings import (
    FULL_INFORMATION,
    GAUSSIAN_LEAVES,
    INFTDA,
    STABILITY_HISTOGRAM,
    TDA_CHEBYSHEV,
    TripsSettings,
)
from .tree import NodeCounts, RunTree, Tree, TrueTree, read_tree, read_truth, sum_by_key

TABLE = "trips"
RANGE_QUERIES = "range_queries.parquet"
LEVEL = "level"


def write_release(run: RunDirectory) -> None:
    """Write table and range queries into the unchecked release.

    The CSV file comes last: where it is, all is.
    """
    run_tree = read_tree(run)
    tree = run_tree.tree
    leaves = read_nodes(estimates_file(run, tree.depth), tree, tree.depth, "count").ascending
    folder = run.unchecked_release
    _write(folder / RANGE_QUERIES, list(_range_queries(tree, leaves)))
    _write(folder / TABLE, [pa.table(release_columns(run_tree, leaves))])


def _range_queries(tree: Tree, leaves: NodeCounts) -> Iterator[pa.Table]:
    """The levels of the tree, finest first, as tables of one schema."""
    names = [dimension.name for dimension in tree.dimensions]
    nodes = leaves
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
            nodes = sum_by_key(tree.parent_keys(level + 1, nodes.keys), nodes.counts)
        n = nodes.keys.size
        codes = node_columns(tree, level, nodes.keys)
        columns = {LEVEL: pa.array(np.full(n, level, dtype=np.int32))}
        columns |= {
            name: codes[name].dictionary_decode() if name in codes else pa.nulls(n, pa.string())
            for name in names
        }
        yield pa.table(columns | {"count": pa.array(nodes.counts)})


def release_columns(run_tree: RunTree, leaves: NodeCounts) -> dict[str, pa.Array]:
    """The columns of the released table, as texts or, where the input had them, as integers."""
    tree = run_tree.tree
    positions = tree.positions(tree.depth, leaves.keys)
    columns = {}
    for column in run_tree.columns:
        dimension = tree.dimensions[column.dimension]
        codes = pa.array(dimension.levels[column.depth].codes, pa.string())
        if column.is_integer:
            codes = codes.cast(pa.int64())
        at_depth = dimension.ancestors(column.depth)[positions[column.dimension]]
        columns[column.name] = codes.take(pa.array(at_depth))
    columns["count"] = pa.array(leaves.counts, pa.int64())
    return columns


def released_level(folder: Path, tree: Tree, level: int) -> NodeCounts:
    """The range queries of a level, as nodes, from a release in `folder`."""
    table = pq.read_table(
        folder / RANGE_QUERIES,
        filters=[(LEVEL, "=", level)],
        read_dictionary=[dimension.name for dimension in tree.dimensions],
    )
    return NodeCounts(node_keys(tree, level, table, RANGE_QUERIES), table["count"].to_numpy())


def _write(stem: Path, tables: Sequence[pa.Table]) -> None:
    """Write tables of one schema as Parquet, each as row groups of its own, and then as delimited
    text with one header; empty fields are null."""
    stamped = stamp_at(stem) or None
    schema = tables[0].schema.with_metadata(stamped)
    parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    with replacing(parquet) as part, pq.ParquetWriter(part, schema, compression="zstd") as rows:
        for table in tables:
            rows.write_table(table.replace_schema_metadata(stamped), row_group_size=ROWS_PER_GROUP)
    with replacing(text) as part, part.open("wb") as sink:
        if stamped:
            sink.write(f"# {NOT_PRIVATE}\n".encode())
        with pacsv.CSVWriter(sink, tables[0].schema) as lines:
            for table in tables:
                lines.write_table(table)


def settings_of_release(run: RunDirectory, settings: TripsSettings, folder: Path) -> TripsSettings:
    """Settings of the same mechanism on a finished run's release."""
    which = "trips" if settings.input.trips is not None else "table"
    own = {which: str(run.release / "trips.parquet"), "count": "count", "person": None}
    privacy = {"excess_trips": "refused"}
    return settings.model_copy(
        update={
            "input": settings.input.model_copy(update={**own, "confidential": False}),
            "privacy": settings.privacy.model_copy(update=privacy),
        }
    )


BETA = 0.05
"""A bound fails with at most this probability."""

THEOREM_4, PROPOSITION_1 = "Theorem 4", "Proposition 1"
BOUND_OF = {
    INFTDA: THEOREM_4,
    TDA_CHEBYSHEV: THEOREM_4,
    GAUSSIAN_LEAVES: PROPOSITION_1,
    STABILITY_HISTOGRAM: PROPOSITION_1,
}
"""Statement of [InfTDA2024] that bounds the errors of a mechanism; other mechanisms have none."""


def error_bounds(plan: TreePlan, total: int | None) -> list[float] | None:
    """Bounds of the levels, root first, by the statement for the mechanism; None without one.

    `total` is the number of trips, where it is public.
    """
    return theorem_4(plan) or proposition_1(plan, total)


def theorem_4(plan: TreePlan) -> list[float] | None:
    """Bounds of the levels, root first; None for a mechanism without this bound."""
    if BOUND_OF.get(plan.mechanism) != THEOREM_4:
        return None

    def largest_noise(level: int, n_events: int) -> float:
        deviation = math.sqrt(plan.parameter(level))
        n_nodes = plan.tree.n_nodes(level)
        return deviation * math.sqrt(2 * (math.log(2 * n_events / BETA) + math.log(n_nodes)))

    bounds = []
    for level in range(plan.tree.depth + 1):
        measured = [k for k in plan.levels if k <= level]
        noise = ((2 if k else 1) * largest_noise(k, len(measured)) for k in measured)
        bounds.append(sum(noise, 0.0))
    return bounds


def proposition_1(plan: TreePlan, total: int | None = None) -> list[float] | None:
    """Bounds of the levels, root first; None for a mechanism without this bound.

    `total` is the number of trips, which bounds how many leaves have any; None if not known.
    """
    if BOUND_OF.get(plan.mechanism) != PROPOSITION_1:
        return None
    levels = range(plan.tree.depth + 1)
    most_leaves = [largest_leaf_counts(plan.tree, level, 1)[0] for level in levels]
    n_nodes = [plan.tree.n_nodes(level) for level in levels]
    if plan.mechanism == STABILITY_HISTOGRAM:
        occupied = n_nodes[-1] if total is None else min(n_nodes[-1], total)
        of_a_leaf = _largest_error_of_a_leaf(plan, occupied)
        return [float(min(leaves, occupied) * of_a_leaf) for leaves in most_leaves]
    variance = float(plan.parameter(plan.tree.depth))
    return [
        math.sqrt(2 * variance * leaves * (math.log(2 / BETA) + math.log(n)))
        for leaves, n in zip(most_leaves, n_nodes, strict=True)
    ]


def _largest_error_of_a_leaf(plan: TreePlan, n_leaves: int) -> int:
    """t + k - 2 of the module's docstring, for `n_leaves` occupied leaves."""
    scale = float(plan.parameter(plan.tree.depth))
    if not scale or not n_leaves:
        return 0
    # P(|Z| >= k) = 2 q^k / (1 + q) for k >= 1, with q = exp(-1 / scale).
    allowed = BETA * (1 + math.exp(-1 / scale)) / (2 * n_leaves)
    return (plan.threshold or 1) + max(1, math.ceil(-scale * math.log(allowed))) - 2


BINS_PER_SIGMA = 4
"""Noisy counts are compared with their opposites in bins of a quarter of a standard deviation."""


@dataclass(frozen=True)
class FalseCells:
    """Released cells, and how many of them are expected to have no trips, or indistinguishably few.

    `sigma` is the standard deviation of the noise in a cell.
    """

    released: int
    expected: float
    sigma: float

    @property
    def sentence(self) -> str:
        """How many cells are released, and how many of them are expected to be false, in words."""
        if not self.released:
            return "no cell is released with trips"
        share = self.expected / self.released
        hidden = f", or so few that noise of {self.sigma:.3g} hides them" if self.sigma else ""
        return (
            f"of {self.released:,} released cells about {round(self.expected):,} ({share:.0%}) are "
            f"expected to be false: to have no trips{hidden}"
        )


def false_cells(run: RunDirectory, plan: TreePlan) -> FalseCells:
    """Expected false cells of a run's released table, from its noisy measurements.

    The stability histogram releases no empty cells. Where the finest level was not measured,
    because it repeats the counts above, the finest measured level replaces it.
    """
    level = max(plan.levels)
    released = released_level(run.release, plan.tree, level).positive.ascending
    sigma_squared = float(plan.parameter(level))
    if plan.mechanism == STABILITY_HISTOGRAM or not sigma_squared:
        return FalseCells(released.keys.size, 0.0, 0.0)
    measured = read_nodes(measured_file(run, level), plan.tree, level, "value")
    sigma = math.sqrt(sigma_squared)
    return FalseCells(released.keys.size, expected_false(measured, released, sigma), sigma)


def expected_false(measured: NodeCounts, released: NodeCounts, sigma: float) -> float:
    """Expected number of empty cells among the released ones.

    Args:
        measured: keys of all cells that were measured, and their noisy counts.
        released: the released cells, by ascending keys, with their positive counts.
        sigma: standard deviation of the noise.
    """
    width = max(1, round(sigma / BINS_PER_SIGMA))
    bin_of = (np.abs(measured.counts) + width - 1) // width
    n_bins = int(bin_of.max(initial=0)) + 1
    above = np.bincount(bin_of[measured.counts > 0], minlength=n_bins)
    below = np.bincount(bin_of[measured.counts < 0], minlength=n_bins)
    chance = np.minimum(1.0, below / np.maximum(above, 1))
    is_released = released.counts_of(measured.keys) > 0
    is_above = is_released & (measured.counts > 0)
    return float(chance[bin_of[is_above]].sum() + (is_released & (measured.counts <= 0)).sum())


KEYS = ("level", "areas")
FIGURES = {
    "max_absolute_error": "largest absolute error",
    "mean_absolute_error": "mean absolute error of the nodes with trips in truth or release",
    "false_discovery_percent": "released nodes without trips, %",
    "false_negative_percent": "nodes with trips that are not released, %",
}
"""Columns of a run's errors, also in comparisons of runs: keys, and figures with their labels."""


def write_accuracy(run: RunDirectory, settings: TripsSettings) -> None:
    """Write the errors of a released run into the confidential folder."""
    plan, truth = read_plan(run), read_truth(run)
    rows = []
    bounds = error_bounds(plan, truth.leaves.total)
    biases = selection_bias(run, plan, truth) if plan.mechanism == FULL_INFORMATION else None
    for level in range(plan.tree.depth + 1):
        released = released_level(run.release, plan.tree, level)
        row = {"level": level, "areas": plan.tree.level_name(level)}
        row |= level_errors(truth.levels[level], released)
        row["error_bound"] = None if bounds is None else bounds[level]
        row["bias"] = None if biases is None else biases[level]
        rows.append(row)
    write_errors(run, pa.Table.from_pylist(rows))


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


def report(
    run: RunDirectory, settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document."""
    own = read_plan(run)
    bounds = error_bounds(own, read_tree(run).total)
    return report_document(
        run,
        settings,
        plan,
        "trips/templates/report.md.j2",
        counts=first_rows(run.release / f"{TABLE}.parquet"),
        own=own,
        false_cells=false_cells(run, own).sentence,
        confidence=f"{1 - BETA:g}",
        bound_of=None if bounds is None else BOUND_OF[own.mechanism],
        levels=_levels(run, own, bounds),
        errors=None
        if accuracy is None
        else accuracy.set_index("level")["mean_absolute_error"].rename("level {}".format).to_dict(),
        accuracy=None if accuracy is None else _accuracy(accuracy),
    )


def delta_warning(settings: TripsSettings, n_trips: int) -> str | None:
    """A sentence if delta is not below one over the number of persons; None if it is.

    `n_trips` must be public: an invariant total, or a released one. It implies the fewest persons.
    """
    delta = settings.privacy.delta
    if delta is None or settings.privacy.epsilon is None or n_trips <= 0:
        return None
    fewest_persons = math.ceil(n_trips / settings.privacy.trips_per_person)
    if delta * fewest_persons < 1:
        return None
    return (
        f"privacy.delta = {delta} is not below one over the number of persons: such a guarantee "
        "does not rule out that a person's trips are published outright, so choose a smaller delta"
    )


def _levels(run: RunDirectory, plan: TreePlan, bounds: Sequence[float] | None) -> Table:
    """Areas, nodes, released counts and error bounds of every level of the tree."""
    tree, file = plan.tree, run.release / RANGE_QUERIES
    released = Counter(pq.read_table(file, columns=[LEVEL])[LEVEL].to_pylist())
    rows = [
        {
            "level": level,
            "areas": tree.level_name(level),
            "nodes": tree.n_nodes(level),
            "released": released[level],
            "error bound": None if bounds is None else bounds[level],
        }
        for level in range(tree.depth + 1)
    ]
    return Table.of(rows, "error bound")


def _accuracy(accuracy: pd.DataFrame) -> Table:
    columns = {
        **dict(zip(KEYS, KEYS, strict=True)),
        **FIGURES,
        "error_bound": "error bound",
        "bias": "bias of the combined estimates",
    }
    known = {name: text for name, text in columns.items() if accuracy[name].notna().all()}
    return errors_table(accuracy, known, FIGURES["mean_absolute_error"])
