"""Measurements and cost of a trips run, computed from its settings and its public tree.

A person who comes or goes adds trips to, or takes them from, as few nodes of a level as hold them;
one whose trips go elsewhere does both. The squared L2 norm of that scales Gaussian noise, and the
number of trips that differ the noise of the stability histogram, whose threshold bounds delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize_scalar

from ..outcome import Failures
from ..plan import (
    GAUSSIAN,
    LAPLACE,
    REPORT_DELTA,
    Measure,
    Plan,
    check_plan,
    check_sums,
    make_guarantee,
    make_measure,
    read_plan,
)
from ..run_files import read_json, read_settings
from .run_files import TripsTree, level_paths, read_tree

UNIVERSE = "trips"
FOLDER = "spine/trips"
LEAVES = ("gaussian_leaves", "stability_histogram")
RELATIVE_TOLERANCE = 1e-9
ROUNDED = 1e-11
"""Largest decrease of a rho by rounding it down to twelve digits."""


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
        stored["histogram"]["threshold"] if is_histogram else None,
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
        own = make_guarantee(
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
    wanted = Plan(
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
    check_plan(root, wanted, settings, failures)
    check_sums(root, failures)


def _measures(
    root: Path, settings: Mapping[str, Any], tree: TripsTree, due: Promise, loss: Fraction | None
) -> list[Measure]:
    found, privacy, is_histogram = [], settings["privacy"], due.threshold is not None
    most = None if loss is None else _most_trips(privacy)
    for level, share in _shares(root, settings, due.levels).items():
        own = make_measure(
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
    due = _rho_of(epsilon, delta, is_tight=privacy["conversion"] == "tight")
    if not -ROUNDED / 10 <= float((due - found) / due) <= ROUNDED:
        failures.add(f"the plan's rho {found} differs from epsilon and delta in the settings")
    return found


def _rho_of(epsilon: Fraction, delta: Fraction, *, is_tight: bool) -> Fraction:
    """The largest rho within epsilon at delta, by the simple or the tight bound."""
    with localcontext() as context:
        context.prec = 50
        of, log = (Decimal(own.numerator) / own.denominator for own in (epsilon, delta))
        log = -log.ln()
        if not is_tight:
            return Fraction((of / ((log + of).sqrt() + log.sqrt())) ** 2)

        def rho(excess: Decimal) -> Decimal:
            alpha = 1 + excess
            return (of - (log - excess.ln() + alpha * (1 - 1 / alpha).ln()) / excess) / alpha

        at = minimize_scalar(
            lambda x: -float(rho(Decimal(math.exp(x)))), bounds=(-15, 25), method="bounded"
        ).x
        return Fraction(rho(Decimal(math.exp(at))))


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
