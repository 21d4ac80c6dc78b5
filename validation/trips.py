"""Checks of a trips run from its settings and public files, without the code that wrote them.

Areas are numbered per dimension and depth in the order of `spine/trips/areas.parquet`; a node is
the tuple of its areas' numbers, as one integer.

A person who comes or goes adds trips to, or takes them from, as few nodes of a level as hold them;
one whose trips go elsewhere does both. The squared L2 norm of that scales Gaussian noise, and the
number of trips that differ the noise of the stability histogram, whose threshold bounds delta.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import plan
from .outcome import Failures, Outcome
from .plan import GAUSSIAN, LAPLACE, REPORT_DELTA, read_plan
from .run_files import (
    UnusableRunFile,
    checked_table,
    encode_texts,
    read_json,
    read_settings,
    unusable_files_fail,
)

UNIVERSE = "trips"
FOLDER = "spine/trips"
LEAVES = ("gaussian_leaves", "stability_histogram")
RELATIVE_TOLERANCE = 1e-9
ROUNDED = 1e-11
"""Largest decrease of a rho by rounding it down to twelve digits."""

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


@dataclass(frozen=True, eq=False)
class Areas:
    """One depth of one dimension: the code of every area and the number of its parent."""

    codes: pd.Index
    parent: np.ndarray


@dataclass(frozen=True, eq=False)
class TripsTree:
    """The tree that a run's public files describe."""

    names: tuple[str, ...]
    areas: tuple[tuple[Areas, ...], ...]
    refined: tuple[int, ...]
    columns: tuple[dict, ...]
    total: int | None
    level_names: tuple[tuple[str, ...], ...]

    def level_name(self, level: int) -> str:
        """The levels that the refined dimensions have reached."""
        names = [
            own[depth]
            for own, depth in zip(self.level_names, self.depths(level), strict=True)
            if depth
        ]
        return ", ".join(names) or "root"

    def depths(self, level: int) -> tuple[int, ...]:
        """How often each dimension has been refined down to a level."""
        return tuple(self.refined[:level].count(number) for number in range(len(self.names)))

    def sizes(self, level: int) -> tuple[int, ...]:
        """Number of areas of each dimension at a level."""
        return tuple(
            len(areas[depth].codes)
            for areas, depth in zip(self.areas, self.depths(level), strict=True)
        )

    def parents(self, level: int, nodes: np.ndarray) -> np.ndarray:
        """The parents, in the level above, of nodes of a level."""
        number = self.refined[level - 1]
        parts = list(np.unravel_index(nodes, self.sizes(level)))
        parts[number] = self.areas[number][self.depths(level)[number]].parent[parts[number]]
        return np.ravel_multi_index(parts, self.sizes(level - 1))

    def n_children(self, level: int, nodes: np.ndarray) -> np.ndarray:
        """Numbers of children, in the level below, of each node of a level."""
        number = self.refined[level]
        own = np.unravel_index(nodes, self.sizes(level))[number]
        below = self.areas[number][self.depths(level)[number] + 1]
        return np.bincount(below.parent, minlength=self.sizes(level)[number])[own]


def read_tree(root: Path) -> TripsTree:
    """The tree of the run at `root`; raises UnusableRunFile for one that contradicts itself."""
    folder = root / "spine" / "trips"
    facts = json.loads((folder / "tree.json").read_text(encoding="utf-8"))
    table = pq.read_table(folder / "areas.parquet").to_pandas()
    dimensions, level_names = [], []
    for name in facts["dimensions"]:
        own = table[table["dimension"] == name]
        levels: list[Areas] = []
        for depth in range(int(own["depth"].max()) + 1):
            rows = own[own["depth"] == depth]
            areas = Areas(pd.Index(rows["code"]), rows["parent"].to_numpy())
            if levels and not np.array_equal(
                np.unique(areas.parent), np.arange(len(levels[-1].codes))
            ):
                raise UnusableRunFile("areas.parquet has parents that are not areas, or no parents")
            if areas.codes.has_duplicates:
                raise UnusableRunFile(f"areas.parquet names an area of {name} twice at one depth")
            levels.append(areas)
        dimensions.append(tuple(levels))
        names = own.drop_duplicates("depth").sort_values("depth")["level"]
        level_names.append(tuple(names))
    return TripsTree(
        tuple(facts["dimensions"]),
        tuple(dimensions),
        tuple(facts["refined"]),
        tuple(facts["columns"]),
        facts["total"],
        tuple(level_names),
    )


def read_level(
    tree: TripsTree, level: int, paths: list[Path], value: str
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in files of one level, and their values, in the order of the rows.

    Raises UnusableRunFile for a value that is not an integer.
    """
    depths = tree.depths(level)
    names = [name for name, depth in zip(tree.names, depths, strict=True) if depth]
    nodes, values = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=names) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=[*names, value])
                column = table[value]
                if column.null_count or not pa.types.is_integer(column.type):
                    raise UnusableRunFile(f"a {value} in {path.name} is not a whole number")
                nodes.append(nodes_of(tree, level, table, path.name))
                values.append(column.to_numpy())
    return np.concatenate(nodes), np.concatenate(values)


def level_paths(root: Path, kind: str, level: int, folder: str = "") -> list[Path]:
    """Files of a level below `kind`, in the order of their names."""
    return sorted((root / kind / f"level_{level:02d}" / folder).glob("*.parquet"))


def nodes_of(tree: TripsTree, level: int, table: pa.Table, name: str) -> np.ndarray:
    """The nodes that the columns of a table name; `name` is the name of its file."""
    parts = []
    for dimension, depth, areas in zip(tree.names, tree.depths(level), tree.areas, strict=True):
        if not depth:
            parts.append(np.zeros(table.num_rows, dtype=np.int64))
            continue
        column = encode_texts(table[dimension].combine_chunks())
        numbers = areas[depth].codes.get_indexer(column.dictionary.to_pylist())
        part = numbers[column.indices.to_numpy()]
        if (part < 0).any():
            raise UnusableRunFile(f"{name} names an area that is not of its level")
        parts.append(part)
    return np.ravel_multi_index(parts, tree.sizes(level)).astype(np.int64)


@dataclass(frozen=True)
class Promise:
    """Expectations on a run's files from settings, plan and tree.

    levels : the measured levels.
    threshold : the smallest count that the stability histogram may list, None for others.
    top_down : whether counts are consistent and not negative.
    children_measured : whether a level's measured nodes are the children of the positive nodes
        above, and `every_node` whether they are all nodes; else they were chosen in another way.
    """

    levels: tuple[int, ...]
    threshold: int | None
    top_down: bool
    children_measured: bool
    every_node: bool


def expectation(root: Path, tree: TripsTree) -> Promise:
    """Compute the expectations on the run below `root`; raises UnusableRunFile."""
    own = read_settings(root)["mechanism"]
    n_nodes = sum(n_all(tree, level) for level in range(len(tree.refined) + 1))
    is_whole = own["name"] == "inftda_full_information" and n_nodes <= own["most_nodes"]
    is_selected = own["name"] == "inftda_full_information" and not is_whole
    top_down = own["name"] not in LEAVES
    is_histogram = own["name"] == "stability_histogram"
    stored = read_json(root, Path(FOLDER) / "plan.json")
    return Promise(
        tuple(int(own.part.removeprefix("level_")) for own in read_plan(root).measures),
        stored["threshold"] if is_histogram else None,
        top_down,
        top_down and not is_whole and not is_selected,
        not is_histogram and (is_whole or not top_down),
    )


def n_all(tree: TripsTree, level: int) -> int:
    """All nodes of a level."""
    return math.prod(tree.sizes(level))


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a plan of another form.
    """
    settings, tree = read_settings(root), read_tree(root)
    privacy, due = settings["privacy"], expectation(root, tree)
    is_histogram, is_bounded = due.threshold is not None, privacy["neighbors"] == "bounded"
    is_exact = is_bounded and privacy.get("total") != "measured"
    loss = None if privacy["infinite"] else _loss(root, privacy, is_histogram, failures)
    delta = Fraction(privacy.get("delta") or REPORT_DELTA)
    kind = LAPLACE if is_histogram else GAUSSIAN
    guarantees = []
    if loss is not None:
        own = plan.make_guarantee(
            UNIVERSE,
            privacy["neighbors"],
            loss,
            is_pure=is_histogram,
            delta=delta if is_histogram else Fraction(0),
            mechanism=kind,
            epsilon_delta=delta,
        )
        guarantees.append(own)
    if due.threshold is not None:
        _check_threshold(privacy, due.threshold, failures)
    elif due.top_down:
        _check_unmeasured(tree, due.levels, is_exact, failures)
    if not due.top_down and due.levels != (len(tree.refined),):
        failures.add("other levels are measured than the leaves")
    if (tree.total is not None) != is_exact:
        failures.add("tree.json has a total, or lacks it, against the settings")
    wanted = plan.Plan(
        "trips",
        privacy["dataset"],
        tuple(_measures(root, settings, tree, due, loss)),
        tuple(guarantees),
        tuple(guarantees),
        ("areas", *(("number of trips",) if is_exact else ())),
        frozenset(
            [
                "settings.toml",
                *(f"{FOLDER}/{n}" for n in ("tree.json", "areas.parquet", "plan.json")),
            ]
        ),
        ("confidential/trips/leaves.parquet",),
    )
    plan.check_plan(root, wanted, settings, failures)
    plan.check_sums(root, failures)


def _measures(
    root: Path, settings: Mapping[str, Any], tree: TripsTree, due: Promise, loss: Fraction | None
) -> list[plan.Measure]:
    found, privacy, is_histogram = [], settings["privacy"], due.threshold is not None
    most = None if loss is None else _most_trips(privacy)
    for level, share in _shares(root, settings, due.levels).items():
        own = plan.make_measure(
            UNIVERSE,
            tree.level_name(level),
            "positive counts" if is_histogram else "counts",
            areas=n_all(tree, level),
            answers=None,
            share=share,
            loss=None if loss is None else loss * share,
            moved=most if is_histogram else squared_sensitivity(tree, level, privacy),
            mechanism=LAPLACE if is_histogram else GAUSSIAN,
            part=f"level_{level:02d}",
        )
        found.append(own)
    return found


def _shares(
    root: Path, settings: Mapping[str, Any], levels: tuple[int, ...]
) -> dict[int, Fraction]:
    """Shares as the settings say; optimised ones as the plan has them, since any that are positive
    and add to 1 will do."""
    own = settings["mechanism"]
    given = "uniform" if own["name"] in LEAVES else own["shares"]
    if given == "optimised":
        return dict(zip(levels, (one.share for one in read_plan(root).measures), strict=True))
    if isinstance(given, str):
        ratio = Fraction(1) if given == "uniform" else Fraction(own["share_ratio"])
        given = [ratio**n for n in range(len(levels))]
    weights = [Fraction(share) for share in given]
    return {n: weight / sum(weights) for n, weight in zip(levels, weights, strict=True)}


def _loss(
    root: Path, privacy: Mapping[str, Any], is_histogram: bool, failures: Failures
) -> Fraction:
    """The budget spent: the rho or epsilon of the settings, or the plan's rho where it follows from
    their epsilon and delta.
    """
    if privacy.get("rho") is not None:
        return Fraction(privacy["rho"])
    epsilon, delta = Fraction(privacy["epsilon"]), Fraction(privacy["delta"])
    if is_histogram:
        return epsilon
    found = sum((own.loss or Fraction(0) for own in read_plan(root).measures), Fraction(0))
    due = plan.rho_of(epsilon, delta, is_tight=privacy["conversion"] == "tight")
    if not -ROUNDED / 10 <= float((due - found) / due) <= ROUNDED:
        failures.add(f"the plan's rho {found} differs from epsilon and delta in the settings")
    return found


def _check_threshold(privacy: Mapping[str, Any], threshold: int, failures: Failures) -> None:
    """The threshold is the least by which a person's own cells are listed with probability delta.

    m trips are in m cells of one trip or, unless they are distinct, in one of m.
    """
    if privacy["infinite"]:
        if threshold != 1:
            failures.add("there is a threshold, but no noise")
        return
    m, rate = (
        privacy["trips_per_person"],
        float(Fraction(privacy["epsilon"]) / _most_trips(privacy)),
    )
    allowed = min(float(Fraction(privacy["delta"])), -math.expm1(-rate))

    def listed(at: int) -> float:
        chances = [math.exp(-rate * k) / (1 + math.exp(-rate)) for k in (at - 1, at - m)]
        return m * chances[0] if privacy["distinct_trips"] else max(m * chances[0], chances[1])

    is_least = threshold == m + 1 or listed(threshold - 1) > allowed * (1 - RELATIVE_TOLERANCE)
    if threshold <= m or listed(threshold) > allowed * (1 + RELATIVE_TOLERANCE) or not is_least:
        failures.add(f"the threshold {threshold} differs from the settings' delta")


def _check_unmeasured(
    tree: TripsTree, levels: tuple[int, ...], is_exact: bool, failures: Failures
) -> None:
    """Check that a level without noise is one that neighbours cannot change, or one of only
    children."""
    n_above = None
    for level in range(len(tree.refined) + 1):
        n = n_all(tree, level)
        if level not in levels and not (level == 0 and is_exact) and n != n_above:
            failures.add(f"level {level} is not measured, but does not follow from the one above")
        if level in levels and level == 0 and is_exact:
            failures.add("an invariant root is measured")
        n_above = n


def check_losses(root: Path, failures: Failures) -> None:
    """Every file of a level has the variance and the loss of the plan."""
    parts = {own.part: own for own in read_plan(root).measures}
    folder = root / "measurements" / "trips"
    if not {path.name for path in folder.glob("level_*")} <= set(parts):
        failures.add("a level is measured that the plan does not have")
    for part, own in parts.items():
        due = "inf" if own.loss is None else str(own.loss)
        for path in level_paths(root, "measurements/trips", int(part[-2:]), "dpqueries"):
            table = pq.read_table(path, columns=["plb", "variance"])
            for row in table.group_by(["plb", "variance"]).aggregate([]).to_pylist():
                if str(row["plb"]) != due:
                    failures.add(f"{part} has a loss of {row['plb']}, and the plan {due}")
                if not math.isclose(row["variance"], own.variance or 0, rel_tol=RELATIVE_TOLERANCE):
                    failures.add(f"{part} does not have the variance of the plan's noise")


def squared_sensitivity(tree: TripsTree, level: int, privacy: Mapping[str, Any]) -> int:
    """Largest squared change of a level's counts by one person, by filling the largest nodes."""
    m, is_bounded = privacy["trips_per_person"], privacy["neighbors"] == "bounded"
    if level == 0:
        return 0 if is_bounded and privacy.get("total") != "measured" else m * m
    squares = m * m
    if privacy["distinct_trips"]:
        squares, left = 0, m
        for room in _largest_nodes(tree, level, m):
            squares += min(room, left) ** 2
            left -= min(room, left)
    return squares * (2 if is_bounded else 1)


def _largest_nodes(tree: TripsTree, level: int, n: int) -> list[int]:
    """Numbers of leaves of the n nodes of a level that have most."""
    products = [1]
    for areas, depth in zip(tree.areas, tree.depths(level), strict=True):
        leaves = np.ones(len(areas[-1].codes), dtype=np.int64)
        for below in range(len(areas) - 1, depth, -1):
            leaves = np.bincount(areas[below].parent, leaves).astype(np.int64)
        largest = sorted(leaves.tolist(), reverse=True)[:n]
        products = sorted((a * b for a in products for b in largest), reverse=True)[:n]
    return products


def _most_trips(privacy: Mapping[str, Any]) -> int:
    """How many trips differ between neighbours, in the L1 norm of the leaves' counts."""
    return privacy["trips_per_person"] * (2 if privacy["neighbors"] == "bounded" else 1)


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check a run; a file that is missing or of another layout fails the checks that need it."""
    names = {**ALWAYS, **TOP_DOWN}
    failures = {name: Failures() for name in names}
    with unusable_files_fail(*failures.values()):
        settings = read_settings(root)
        if settings["mechanism"]["name"] in LEAVES:
            names = dict(ALWAYS)
        tree, is_private = read_tree(root), plan.not_private_reason(settings) is None
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
        if [path.stem for path in paths] != ["00000"]:
            failures.add(f"level {level} has not one file of measurements")
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
    above: pd.Series | None = None
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
        elif not above.equals(_sums(tree.parents(level, nodes), counts)):
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
        table = checked_table(folder, "trips", is_private=is_private, failures=own)
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
        if not _sums(nodes, table["count"].to_numpy()).equals(_sums(*leaves)):
            own.add("trips.parquet is not the estimates of the leaves")


def _check_range_queries(
    tree: TripsTree,
    leaves: tuple[np.ndarray, np.ndarray],
    folder: Path,
    is_private: bool,
    failures: Failures,
) -> None:
    with unusable_files_fail(failures):
        table = checked_table(folder, "range_queries", is_private=is_private, failures=failures)
        nodes, counts = leaves
        for level in range(len(tree.refined), -1, -1):
            if level < len(tree.refined):
                nodes = tree.parents(level + 1, nodes)
            due, rows = _sums(nodes, counts), table.filter(pc.equal(table["level"], level))
            nodes, counts = due.index.to_numpy(), due.to_numpy()
            stated = nodes_of(tree, level, rows, "range_queries.parquet")
            if not due.equals(_sums(stated, rows["count"].to_numpy())):
                failures.add(f"the range queries of level {level} are not sums of the table")


def _sums(nodes: np.ndarray, counts: np.ndarray) -> pd.Series:
    """Sums by node, in ascending order of nodes, without zeros."""
    sums = pd.Series(counts, dtype=np.int64).groupby(nodes).sum()
    return sums[sums != 0]


def _are_distinct(nodes: np.ndarray) -> bool:
    return bool((np.diff(np.sort(nodes)) > 0).all())
