"""Epsilon of group sizes, trips and detailed groups by what is charged and exactly.

    .venv/bin/python -m benchmarks.exact_epsilons_of_products [--parameters FOLDER]

Between the product's own neighbours: the epsilon at delta that follows from the charge (the tight
conversion of rho, or the epsilon of pure differential privacy itself), the exact upper and lower
bound, and by how much all variances are smaller at the charge whose exact epsilon is the first.
The folder has the parameters of detailed groups, `config.json` among them. Nothing is drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from spineflow.tasks.detailed_groups.workload import guarantee as detailed_groups
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.group_sizes import measurement as group_sizes
from spineflow.tasks.group_sizes.plan import Plan, calibrate
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.trips import charge as trips
from spineflow.tasks.trips.plan import make_plan as make_trips_plan
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.tree import hierarchy_of_links, od_tree

from benchmarks.exact_epsilons import bounds

DELTA = Fraction(1, 10**10)
HALVINGS = 18

CurveOf = Callable[[Fraction], PrivacyCurve]
"""The curve when so much is charged."""


def of_group_sizes(mechanism: str, kind: str, *, bounded: bool) -> CurveOf:
    """A nation of 52 states and 3,144 counties."""
    plan = partial(Plan, mechanism=mechanism, bounded=bounded, smallest_size=1, largest_size=1000)
    levels = ["nation", "state", "county"], [1, 52, 3144]
    return lambda loss: group_sizes.exact_curve(
        calibrate(plan(groups=10**6, **{kind: loss}), *levels)
    )


def of_trips(neighbors: str) -> CurveOf:
    """Trips between places of four levels, one trip a person."""
    links = []
    for depth in range(4):
        names = np.array([f"{depth}.{i}" for i in range(2 ** (depth + 1))])
        above = np.array([f"{depth - 1}.{i // 2}" for i in range(names.size)]) if depth else None
        links.append((f"level {depth + 1}", names, above))
    tree = od_tree(hierarchy_of_links("origin", links), hierarchy_of_links("destination", links))

    def curve(loss: Fraction) -> PrivacyCurve:
        source = {"trips": "t", "origin": "o", "destination": "d", "areas": "a"}
        privacy = {"dataset": "d", "neighbors": neighbors, "rho": str(loss)}
        settings = TripsSettings.model_validate({"input": source, "privacy": privacy})
        return trips.exact_curve(make_trips_plan(settings, tree), settings.privacy)

    return curve


def of_detailed_groups(folder: str, definition: str, region_pass: str) -> tuple[CurveOf, Fraction]:
    """The pass, with all budgets in proportion to what is charged; and what is."""
    parameters = read_parameters(folder, {"privacy_defn": definition})
    specification, total = read_specification(folder), parameters.total_of(region_pass)

    def curve(loss: Fraction) -> PrivacyCurve:
        ((name, budgets),) = parameters.budgets.items()
        scaled = {level: own * loss / total for level, own in budgets.items()}
        own = replace(parameters, budgets={name: scaled})
        return detailed_groups.exact_curve(own, specification, region_pass, is_bounded=False)

    return curve, total


def rows(folder: str | None) -> Iterator[tuple[str, str, Fraction, CurveOf]]:
    """What it is, what is charged, how much, and the curve."""
    one = Fraction(1)
    for mechanism in ("cumulative_dp", "hierarchical_dp", "chain_dp"):
        for kind in ("rho", "epsilon"):
            yield (
                f"group sizes, `{mechanism}`",
                kind,
                one,
                of_group_sizes(mechanism, kind, bounded=False),
            )
    for kind in ("rho", "epsilon"):
        moves = of_group_sizes("hierarchical_dp", kind, bounded=True)
        yield "group sizes, `hierarchical_dp`, bounded", kind, one, moves
    for neighbors in ("bounded", "unbounded"):
        yield f"trips, `inftda`, eight levels, {neighbors}", "rho", one, of_trips(neighbors)
    if folder is not None:
        for definition, kind in (("zcdp", "rho"), ("puredp", "epsilon")):
            for region_pass in ("us", "pr"):
                curve, total = of_detailed_groups(folder, definition, region_pass)
                yield f"detailed groups, {region_pass} pass", kind, total, curve


def saved(curve: CurveOf, kind: str, charged: Fraction, told: float) -> float:
    """The part of all variances that the exact figure saves at the same epsilon."""
    low, high = 1.0, 4.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_met = curve(charged * Fraction(middle)).delta_upper(told) <= float(DELTA)
        low, high = (middle, high) if is_met else (low, middle)
    return 1 - low ** -(1 if kind == "rho" else 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parameters", metavar="FOLDER")
    options = parser.parse_args()
    print(
        "| product | charged | epsilon by the charge | exact, at most | exact, at least "
        "| variance saved at that epsilon |"
    )
    print("|---|---|---:|---:|---:|---:|")
    for what, kind, charged, curve in rows(options.parameters):
        told = epsilon_tight(charged, DELTA) if kind == "rho" else float(charged)
        most, least = bounds(curve(charged), DELTA)
        print(
            f"| {what} | {kind} {float(charged):g} | {told:.4g} | {most:.4f} | {least:.4f} "
            f"| {100 * saved(curve, kind, charged, told):.2f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
