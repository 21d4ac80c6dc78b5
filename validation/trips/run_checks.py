"""All checks of a finished trips run, from its public files alone.

Nothing here uses the code that built the tree, drew the noise or estimated, and nothing here opens
`confidential/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from ..outcome import Failures, Outcome
from ..plan import not_private_reason
from ..run_files import UnusableRunFile, check_text, read_settings, unusable_files_fail
from .privacy_loss import LEAVES, UNIVERSE, Promise, check_losses, check_privacy, expectation, n_all
from .run_files import TripsTree, level_paths, nodes_of, read_level, read_tree

ALWAYS: Mapping[str, str] = {
    "measurements_are_complete": "every node that was to be measured was measured exactly once",
    "privacy_accounting": "noise covers what a person can change, and costs what the settings say",
    "measured_loss_is_the_budget": "each level's noise and loss are those of the plan",
    "table_is_the_estimates": "Parquet and text rows agree and are the leaves' estimates",
    "range_queries_add_up": "every level's range queries are sums of the table's rows",
}
TOP_DOWN: Mapping[str, str] = {
    "counts_are_positive": "every released count is a positive integer",
    "children_add_to_parents": "at every node of every level",
    "total_is_kept": "the root is the invariant total, or the measured one",
}
"""Each check's name, and its text when it passed; the second for top-down mechanisms."""


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check a run; a file that is missing or of another layout fails the checks that need it."""
    names = {**ALWAYS, **TOP_DOWN}
    failures = {name: Failures() for name in names}
    with unusable_files_fail(*failures.values()):
        settings = read_settings(root)
        if settings["mechanism"]["name"] in LEAVES:
            names = dict(ALWAYS)
        tree, is_private = read_tree(root), not_private_reason(settings) is None
        with unusable_files_fail(failures["privacy_accounting"]):
            check_privacy(root, failures["privacy_accounting"])
        with unusable_files_fail(failures["measured_loss_is_the_budget"]):
            check_losses(root, failures["measured_loss_is_the_budget"])
        expected = expectation(root, tree)
        with unusable_files_fail(failures["measurements_are_complete"]):
            _check_measured(root, tree, expected, failures["measurements_are_complete"])
        with unusable_files_fail(*failures.values()):
            depth = len(tree.refined)
            leaves = read_level(tree, depth, level_paths(root, "estimates/trips", depth), "count")
            if expected.top_down:
                _check_levels(root, tree, failures)
            _check_table(tree, leaves, release, is_private, failures)
            own = failures["range_queries_add_up"]
            _check_range_queries(tree, leaves, release, is_private, own)
    return tuple(failures[name].outcome(name, UNIVERSE, detail) for name, detail in names.items())


def _check_measured(root: Path, tree: TripsTree, expected: Promise, failures: Failures) -> None:
    for level in expected.levels:
        paths = level_paths(root, "measurements/trips", level, "dpqueries")
        cuts = json.loads((root / f"measurements/trips/level_{level:02d}/cuts.json").read_text())
        if [path.stem for path in paths] != [shard["name"] for shard in cuts["shards"]]:
            failures.add(f"level {level} has not one file for each of its shards")
        nodes, values = read_level(tree, level, paths, "value")
        if not _are_distinct(nodes):
            failures.add(f"level {level} measures a node twice")
        if expected.threshold is not None and (values < expected.threshold).any():
            failures.add("a count below the threshold was published")
        n_nodes = n_all(tree, level)
        if expected.every_node and nodes.size != n_nodes:
            failures.add(f"level {level} has {n_nodes} nodes, but {nodes.size} were measured")
        if expected.children_measured and level:
            above, _ = read_level(
                tree, level - 1, level_paths(root, "estimates/trips", level - 1), "count"
            )
            _check_families(tree, level, above, nodes, failures)


def _check_families(
    tree: TripsTree, level: int, above: np.ndarray, nodes: np.ndarray, failures: Failures
) -> None:
    """Measured nodes, which are distinct, are all children of the positive nodes above."""
    parents, n_measured = np.unique(tree.parents(level, nodes), return_counts=True)
    above = np.sort(above)
    if not np.array_equal(parents, above):
        failures.add(f"level {level} was not measured below the positive nodes above it")
    elif not np.array_equal(n_measured, tree.n_children(level - 1, above)):
        failures.add(f"level {level} lacks children of a positive node above it")


def _check_levels(root: Path, tree: TripsTree, failures: Mapping[str, Failures]) -> None:
    above: Sums | None = None
    for level in range(len(tree.refined) + 1):
        nodes, counts = read_level(
            tree, level, level_paths(root, "estimates/trips", level), "count"
        )
        if (counts <= 0).any():
            failures["counts_are_positive"].add(f"level {level} has a count that is not positive")
        if not _are_distinct(nodes):
            failures["children_add_to_parents"].add(f"level {level} lists a node twice")
        if above is None:
            total = failures["total_is_kept"]
            if tree.total is not None and counts.sum() != tree.total:
                total.add("the root is not the invariant total")
            # A measured root cannot be recognised by its noisy count alone.
            if tree.total is None and not level_paths(root, "measurements/trips", 0, "dpqueries"):
                total.add("the root is neither invariant nor measured")
        elif not _same_sums(above, _sums(tree.parents(level, nodes), counts)):
            failures["children_add_to_parents"].add(f"level {level} does not add to the one above")
        above = _sums(nodes, counts)


def _check_table(
    tree: TripsTree,
    leaves: tuple[np.ndarray, np.ndarray],
    folder: Path,
    is_private: bool,
    failures: Mapping[str, Failures],
) -> None:
    own = failures["table_is_the_estimates"]
    with unusable_files_fail(own):
        table = check_text(folder, "trips", is_private=is_private, failures=own)
        names = [column["name"] for column in tree.columns]
        if table.column_names != [*names, "count"]:
            raise UnusableRunFile("trips.parquet has other columns than the input")
        parts = []
        for number, areas in enumerate(tree.areas):
            column = next(
                c for c in tree.columns if c["dimension"] == number and c["depth"] == len(areas) - 1
            )
            codes = areas[-1].codes.astype("int64") if column["is_integer"] else areas[-1].codes
            parts.append(codes.get_indexer(table[column["name"]].to_pandas()))
            own.add_each(parts[-1] < 0, lambda i: f"row {i} of trips.parquet has no known area")
        if own.count:
            return
        nodes = np.ravel_multi_index(parts, tree.sizes(len(tree.refined)))
        if pc.any(pc.equal(table["count"], 0)).as_py() or not _are_distinct(nodes):
            own.add("trips.parquet has rows of zero trips, or two rows of one cell")
        if not _same_sums(_sums(nodes, table["count"].to_numpy()), _sums(*leaves)):
            own.add("trips.parquet is not the estimates of the leaves")


def _check_range_queries(
    tree: TripsTree,
    leaves: tuple[np.ndarray, np.ndarray],
    folder: Path,
    is_private: bool,
    failures: Failures,
) -> None:
    with unusable_files_fail(failures):
        table = check_text(folder, "range_queries", is_private=is_private, failures=failures)
        nodes, counts = leaves
        for level in range(len(tree.refined), -1, -1):
            if level < len(tree.refined):
                nodes = tree.parents(level + 1, nodes)
            nodes, counts = _sums(nodes, counts)
            rows = table.filter(pc.equal(table["level"], level))
            stated = nodes_of(tree, level, rows, "range_queries.parquet")
            if not _same_sums((nodes, counts), _sums(stated, rows["count"].to_numpy())):
                failures.add(f"the range queries of level {level} are not sums of the table")


Sums = tuple[np.ndarray, np.ndarray]


def _sums(nodes: np.ndarray, counts: np.ndarray) -> Sums:
    """Sums by node, in ascending order of nodes, without zeros."""
    unique, position = np.unique(nodes, return_inverse=True)
    sums = np.zeros(unique.size, dtype=np.int64)
    np.add.at(sums, position, counts)
    return unique[sums != 0], sums[sums != 0]


def _are_distinct(nodes: np.ndarray) -> bool:
    return bool((np.diff(np.sort(nodes)) > 0).all())


def _same_sums(one: Sums, other: Sums) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
