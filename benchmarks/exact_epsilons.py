"""Epsilon of the 2020 presets by the conversion of rho and exactly, and what the difference buys.

    .venv/bin/python -m benchmarks.exact_epsilons [--presets pl94_2020_us dhc_persons_2020_pr]

For every preset and universe, without bypassed geounits: rho; epsilon at delta by the tight
conversion; the exact upper and lower bound; and by how much all variances are smaller at the rho
that `accounting = "exact"` finds for the epsilon of the conversion. Nothing is drawn.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from fractions import Fraction

from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import exact_curve, exact_rho

from tests.tasks.ledger.lower_bounds import epsilon_lower

DELTAS = (Fraction(1, 10**10), Fraction(1, 10**6))


def budgets_of(preset: str) -> Iterator[Budget]:
    tables = ["persons", "units", "geography"]
    if preset.startswith("dhc_persons"):
        tables.append("redistricting")
    source = {
        "preset": preset,
        "input": dict.fromkeys(tables, "/nowhere"),
        "privacy": {"dataset": "d"},
    }
    settings = load_settings(TopdownSettings, source, presets=PRESETS)
    for universe in settings.run.universes:
        yield settings.budget_of(universe)


def bounds(curve: PrivacyCurve, delta: Fraction) -> tuple[float, float]:
    """The exact epsilon at the most and at the least, rounded outwards to four decimals."""
    upper, lower = curve.epsilon_upper(delta), epsilon_lower(curve, delta)
    return math.ceil(1e4 * upper) / 1e4, math.floor(1e4 * lower) / 1e4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = ["pl94_2020_us", "pl94_2020_pr", "dhc_persons_2020_us", "dhc_persons_2020_pr"]
    parser.add_argument("--presets", nargs="+", default=known)
    options = parser.parse_args()
    print(
        "| preset | universe | rho | delta | epsilon by rho | exact, at most | exact, at least "
        "| variance saved at the epsilon by rho |"
    )
    print("|---|---|---|---|---:|---:|---:|---:|")
    for preset in options.presets:
        for budget in budgets_of(preset):
            for delta in DELTAS:
                told, curve = epsilon_tight(budget.total, delta), exact_curve(budget)
                most, least = bounds(curve, delta)
                saved = 1 - budget.total / exact_rho(budget, Fraction(told), delta)
                print(
                    f"| `{preset}` | {budget.universe} | {float(budget.total):.5g} "
                    f"| {float(delta):.0e} | {told:.3f} | {most:.4f} | {least:.4f} "
                    f"| {100 * float(saved):.2f} % |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
