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
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import plan
from .outcome import Failures, Outcome
from .run_files import (
    UnusableRunFile,
    checked_table,
    make_checks,
    number_texts,
    read_batches,
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
    """One depth of one dimension: its level, the code of every area, and its parent's number."""

    level: str
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

    def level_name(self, level: int) -> str:
        """The levels that the refined dimensions have reached."""
        found = zip(self.areas, self.depths(level), strict=True)
        names = [own[depth].level for own, depth in found if depth]
        return ", ".join(names) or "root"

    @property
    def depth(self) -> int:
        """The level of the leaves."""
        return len(self.refined)

    def n_nodes(self, level: int) -> int:
        """All nodes of a level."""
        return math.prod(self.sizes(level))

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
    dimensions = []
    for name in facts["dimensions"]:
        levels: list[Areas] = []
        for _, rows in table[table["dimension"] == name].groupby("depth"):
            areas = Areas(rows["level"].iloc[0], pd.Index(rows["code"]), rows["parent"].to_numpy())
            above = np.arange(len(levels[-1].codes)) if levels else np.unique(areas.parent)
            if not np.array_equal(np.unique(areas.parent), above):
                raise UnusableRunFile("areas.parquet has parents that are not areas, or no parents")
            if areas.codes.has_duplicates:
                raise UnusableRunFile(f"areas.parquet names an area of {name} twice at one depth")
            levels.append(areas)
        dimensions.append(tuple(levels))
    return TripsTree(
        tuple(facts["dimensions"]),
        tuple(dimensions),
        tuple(facts["refined"]),
        tuple(facts["columns"]),
        facts["total"],
    )


def nodes_of(tree: TripsTree, level: int, table: pa.Table, name: str) -> np.ndarray:
    """The nodes that the columns of a table name; `name` is the name of its file."""
    parts = []
    for dimension, depth, areas in zip(tree.names, tree.depths(level), tree.areas, strict=True):
        if not depth:
            parts.append(np.zeros(table.num_rows, dtype=np.int64))
            continue
        texts, number = number_texts(table[dimension].combine_chunks())
        part = areas[depth].codes.get_indexer(texts)[number]
        if (part < 0).any():
            raise UnusableRunFile(f"{name} names an area that is not of its level")
        parts.append(part)
    return np.ravel_multi_index(parts, tree.sizes(level)).astype(np.int64)


@dataclass(frozen=True)
class TripsRun:
    """A run's settings, plan and tree, and the expectations on its files that follow from them."""

    root: Path
    settings: Mapping[str, Any]
    tree: TripsTree
    planned: plan.Plan

    @classmethod
    def read(cls, root: Path) -> TripsRun:
        """Those of the run below `root`; raises UnusableRunFile."""
        return cls(root, read_settings(root), read_tree(root), plan.read_plan(root))

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return str(self.settings["mechanism"]["name"])

    @property
    def is_top_down(self) -> bool:
        """Whether counts are consistent and not negative."""
        return self.mechanism not in LEAVES

    @property
    def is_histogram(self) -> bool:
        """Whether counts from a threshold on are listed alone."""
        return self.mechanism == "stability_histogram"

    @property
    def is_exact(self) -> bool:
        """Whether the number of trips is public."""
        privacy = self.settings["privacy"]
        return privacy["neighbors"] == "bounded" and privacy.get("total") != "measured"

    @property
    def is_private(self) -> bool:
        """Whether the release must be without the stamp of a run that is not."""
        return plan.not_private_reason(self.settings) is None

    @property
    def levels(self) -> tuple[int, ...]:
        """The measured levels."""
        return tuple(int(own.part.removeprefix("level_")) for own in self.planned.measures)

    @cached_property
    def threshold(self) -> int | None:
        """The smallest count that the stability histogram may list, None for others."""
        stored = read_json(self.root, Path(FOLDER) / "plan.json")
        return int(stored["threshold"]) if self.is_histogram else None

    @property
    def measured(self) -> str:
        """Which nodes of a level are measured: all, the children of the positive ones above, or
        those that noise or estimates have chosen."""
        if self.mechanism == "inftda_full_information":
            n_nodes = sum(self.tree.n_nodes(level) for level in range(self.tree.depth + 1))
            return "all" if n_nodes <= self.settings["mechanism"]["most_nodes"] else "chosen"
        of_leaves = dict(zip(LEAVES, ("all", "chosen"), strict=True))
        return of_leaves.get(self.mechanism, "children")

    def measurements(self, level: int) -> Path:
        """Folder of the measurements of a level."""
        return self.root / "measurements" / "trips" / f"level_{level:02d}" / "dpqueries"

    def estimates(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of a level and their estimates, as `read_level` has them."""
        folder = self.root / "estimates" / "trips" / f"level_{level:02d}"
        return self.read_level(level, folder, "count")

    @cached_property
    def leaves(self) -> tuple[np.ndarray, np.ndarray]:
        """The leaves and their estimates."""
        return self.estimates(self.tree.depth)

    def read_level(self, level: int, folder: Path, value: str) -> tuple[np.ndarray, np.ndarray]:
        """Nodes in files of one level, and their values, in the order of the rows.

        Raises UnusableRunFile for a value that is not an integer.
        """
        depths = self.tree.depths(level)
        names = [name for name, depth in zip(self.tree.names, depths, strict=True) if depth]
        nodes, values = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for batch in read_batches(folder, [*names, value], names):
            if not pa.types.is_integer(batch.column(value).type):
                raise UnusableRunFile(f"a {value} in {folder.parent.name} is not a whole number")
            nodes.append(nodes_of(self.tree, level, pa.table(batch), folder.parent.name))
            values.append(batch.column(value).to_numpy())
        return np.concatenate(nodes), np.concatenate(values)


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a plan of another form.
    """
    run = TripsRun.read(root)
    privacy, tree, is_histogram = run.settings["privacy"], run.tree, run.is_histogram
    loss = None if privacy["infinite"] else _loss(run, failures)
    delta = Fraction(privacy.get("delta") or plan.REPORT_DELTA)
    most = None if loss is None else _most_trips(privacy)
    kind = plan.LAPLACE if is_histogram else plan.GAUSSIAN
    guarantees: tuple[plan.Guarantee, ...] = ()
    if loss is not None:
        deltas = {"delta": delta if is_histogram else Fraction(0), "epsilon_delta": delta}
        guarantees = (plan.Guarantee(UNIVERSE, privacy["neighbors"], loss, kind, **deltas),)
    if run.threshold is not None:
        _check_threshold(privacy, run.threshold, failures)
    if run.is_top_down:
        _check_unmeasured(run, failures)
    elif run.levels != (tree.depth,):
        failures.add("other levels are measured than the leaves")
    if (tree.total is not None) != run.is_exact:
        failures.add("tree.json has a total, or lacks it, against the settings")
    measures = [
        plan.Measure(
            UNIVERSE,
            tree.level_name(level),
            "positive counts" if is_histogram else "counts",
            areas=tree.n_nodes(level),
            answers=None,
            share=share,
            loss=None if loss is None else loss * share,
            moved=most if is_histogram else squared_sensitivity(tree, level, privacy),
            mechanism=kind,
            part=f"level_{level:02d}",
        )
        for level, share in _shares(run).items()
    ]
    files = (f"{FOLDER}/{name}" for name in ("tree.json", "areas.parquet", "plan.json"))
    wanted = plan.Plan(
        "trips",
        tuple(measures),
        guarantees,
        guarantees,
        ("areas", *(("number of trips",) if run.is_exact else ())),
        frozenset(["settings.toml", *files]),
        ("confidential/trips/leaves.parquet",),
    )
    plan.check_plan(root, wanted, run.settings, failures)
    plan.check_sums(root, failures)


def _shares(run: TripsRun) -> dict[int, Fraction]:
    """Shares as the settings say; optimised ones as the plan has them, since any that are positive
    and add to 1 will do."""
    own, levels = run.settings["mechanism"], run.levels
    given = "uniform" if own["name"] in LEAVES else own["shares"]
    if given == "optimised":
        return dict(zip(levels, (one.share for one in run.planned.measures), strict=True))
    if isinstance(given, str):
        ratio = Fraction(1) if given == "uniform" else Fraction(own["share_ratio"])
        given = [ratio**n for n in range(len(levels))]
    weights = [Fraction(share) for share in given]
    return {n: weight / sum(weights) for n, weight in zip(levels, weights, strict=True)}


def _loss(run: TripsRun, failures: Failures) -> Fraction:
    """The budget spent: the rho or epsilon of the settings, or the plan's rho where it follows from
    their epsilon and delta.
    """
    privacy = run.settings["privacy"]
    if privacy.get("rho") is not None:
        return Fraction(privacy["rho"])
    epsilon, delta = Fraction(privacy["epsilon"]), Fraction(privacy["delta"])
    if run.is_histogram:
        return epsilon
    found = sum((own.loss or Fraction(0) for own in run.planned.measures), Fraction(0))
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


def _check_unmeasured(run: TripsRun, failures: Failures) -> None:
    """Check that a level without noise is one that neighbours cannot change, or one of only
    children."""
    n_above = None
    for level in range(run.tree.depth + 1):
        n = run.tree.n_nodes(level)
        is_public = level == 0 and run.is_exact
        if level not in run.levels and not is_public and n != n_above:
            failures.add(f"level {level} is not measured, but does not follow from the one above")
        if level in run.levels and is_public:
            failures.add("an invariant root is measured")
        n_above = n


def check_losses(run: TripsRun, failures: Failures) -> None:
    """Every file of a level has the variance and the loss of the plan."""
    folder = run.root / "measurements" / "trips"
    if not {path.name for path in folder.glob("level_*")} <= {m.part for m in run.planned.measures}:
        failures.add("a level is measured that the plan does not have")
    for level, own in zip(run.levels, run.planned.measures, strict=True):
        due = "inf" if own.loss is None else str(own.loss)
        for path in sorted(run.measurements(level).glob("*.parquet")):
            table = pq.read_table(path, columns=["plb", "variance"])
            for row in table.group_by(["plb", "variance"]).aggregate([]).to_pylist():
                if str(row["plb"]) != due:
                    failures.add(f"{own.part} has a loss of {row['plb']}, and the plan {due}")
                if not math.isclose(row["variance"], own.variance or 0, rel_tol=RELATIVE_TOLERANCE):
                    failures.add(f"{own.part} does not have the variance of the plan's noise")


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
        run = TripsRun.read(root)
        make_checks(
            failures,
            ("privacy_accounting", partial(check_privacy, root)),
            ("measured_loss_is_the_budget", partial(check_losses, run)),
            ("measurements_are_complete", partial(_check_measured, run)),
            ("table_is_the_estimates", partial(_check_table, run, release)),
            ("range_queries_add_up", partial(_check_range_queries, run, release)),
        )
        if run.is_top_down:
            _check_levels(run, failures)
        else:
            names = dict(ALWAYS)
    return tuple(failures[name].outcome(name, UNIVERSE, detail) for name, detail in names.items())


def _check_measured(run: TripsRun, failures: Failures) -> None:
    for level in run.levels:
        folder = run.measurements(level)
        if [path.name for path in folder.glob("*.parquet")] != ["00000.parquet"]:
            failures.add(f"level {level} has not one file of measurements")
        nodes, values = run.read_level(level, folder, "value")
        if not _are_distinct(nodes):
            failures.add(f"level {level} measures a node twice")
        if run.threshold is not None and (values < run.threshold).any():
            failures.add("a count below the threshold was published")
        n_nodes = run.tree.n_nodes(level)
        if run.measured == "all" and nodes.size != n_nodes:
            failures.add(f"level {level} has {n_nodes} nodes, but {nodes.size} were measured")
        if run.measured == "children" and level:
            # Measured nodes, which are distinct, are all children of the positive nodes above.
            parents, n_measured = np.unique(run.tree.parents(level, nodes), return_counts=True)
            above = np.sort(run.estimates(level - 1)[0])
            if not np.array_equal(parents, above):
                failures.add(f"level {level} was not measured below the positive nodes above it")
            elif not np.array_equal(n_measured, run.tree.n_children(level - 1, above)):
                failures.add(f"level {level} lacks children of a positive node above it")


def _check_levels(run: TripsRun, failures: Mapping[str, Failures]) -> None:
    tree, above = run.tree, None
    for level in range(tree.depth + 1):
        nodes, counts = run.estimates(level)
        if (counts <= 0).any():
            failures["counts_are_positive"].add(f"level {level} has a count that is not positive")
        if not _are_distinct(nodes):
            failures["children_add_to_parents"].add(f"level {level} lists a node twice")
        if above is None:
            total = failures["total_is_kept"]
            if tree.total is not None and counts.sum() != tree.total:
                total.add("the root is not the invariant total")
            # A measured root cannot be recognised by its noisy count alone.
            if tree.total is None and not run.measurements(0).is_dir():
                total.add("the root is neither invariant nor measured")
        elif not above.equals(_sums(tree.parents(level, nodes), counts)):
            failures["children_add_to_parents"].add(f"level {level} does not add to the one above")
        above = _sums(nodes, counts)


def _check_table(run: TripsRun, release: Path, failures: Failures) -> None:
    table = checked_table(release, "trips", is_private=run.is_private, failures=failures)
    tree = run.tree
    if table.column_names != [*(column["name"] for column in tree.columns), "count"]:
        raise UnusableRunFile("trips.parquet has other columns than the input")
    finest = {
        tree.names[column["dimension"]]: table[column["name"]].cast(pa.string())
        for column in tree.columns
        if column["depth"] == len(tree.areas[column["dimension"]]) - 1
    }
    nodes = nodes_of(tree, tree.depth, pa.table(finest), "trips.parquet")
    if pc.any(pc.equal(table["count"], 0)).as_py() or not _are_distinct(nodes):
        failures.add("trips.parquet has rows of zero trips, or two rows of one cell")
    if not _sums(nodes, table["count"].to_numpy()).equals(_sums(*run.leaves)):
        failures.add("trips.parquet is not the estimates of the leaves")


def _check_range_queries(run: TripsRun, release: Path, failures: Failures) -> None:
    table = checked_table(release, "range_queries", is_private=run.is_private, failures=failures)
    (nodes, counts), tree = run.leaves, run.tree
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
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
