"""What a trips release says of itself, on its certificate and in its report: the mechanism, its
cost, its noise; public content only, true of its plan.
"""

from __future__ import annotations

import math

from ...pages.document import Section, Table
from ...pages.numbers import shown_delta, shown_epsilon
from ...products.budget import Cost
from ...products.certificate import BLURRED, Facts
from ...products.privacy_curves import Curves
from ..paths import UNIVERSE
from ..settings import TripsSettings
from ..workload.costs import universe_plan, within_areas
from ..workload.mechanisms import (
    FULL_INFORMATION,
    GAUSSIAN_LEAVES,
    INFTDA,
    STABILITY_HISTOGRAM,
    TDA_CHEBYSHEV,
    TDA_L2,
)
from ..workload.plan import Plan
from .table import RANGE_QUERIES

METHODS = {
    INFTDA: "level by level from the top, each level's noisy counts being brought to the counts "
    "above by the integer Chebyshev projection of InfTDA",
    TDA_L2: "level by level from the top, each level's noisy counts being brought to the counts "
    "above by the nearest integers in the L2 norm",
    TDA_CHEBYSHEV: "level by level from the top, each level's noisy counts being brought to the "
    "counts above by a Chebyshev minimiser of a general solver",
    FULL_INFORMATION: "from the noisy counts of all levels, combined by least squares on the tree "
    "and then brought to integers from the top",
    GAUSSIAN_LEAVES: "by adding noise to every cell, so that counts may be negative and cells "
    "without trips are listed",
    STABILITY_HISTOGRAM: "by adding noise to cells with trips, and leaving out what falls below a "
    "threshold",
}


def facts_of(
    settings: TripsSettings,
    plan: Plan,
    total: int | None,
    warning: str | None = None,
    curves: Curves | None = None,
) -> Facts:
    """What was protected, against which change, with which noise, and what is exact.

    `total` is the number of trips where it is public.
    """
    sentence = "" if total is None else " Exact is only the number of trips in all."
    return Facts(
        made=METHODS[plan.mechanism],
        public=(
            f"{BLURRED}{sentence} A number of one pair of small places is mostly noise: add such "
            "numbers up before you use them."
        ),
        noise=(words_on_noise(plan),),
        sections=(_levels(plan),),
        curves=curves,
        delta=settings.report_delta,
        warnings=() if warning is None else (warning,),
        block_within={
            UNIVERSE: {
                name: {"conversion": own, "exact": None}
                for name, own in within_areas(plan, settings.report_delta).items()
            }
        },
    )


def _levels(plan: Plan) -> Section:
    rows = tuple((level, plan.tree.level_name(level)) for level in range(plan.tree.depth + 1))
    return Section(
        "What the files hold",
        (
            f"The table, as trips.parquet and trips.csv, without rows of zero trips; and its sums "
            f"at every level of the tree, as {RANGE_QUERIES} and as text.",
            Table(("level", "areas"), rows),
        ),
    )


def cost_table(settings: TripsSettings, plan: Plan) -> Table:
    """Loss and epsilon, natively and composed."""
    cost = Cost(universe_plan(plan, settings.report_delta))
    row = {
        "neighbours": cost.neighbors,
        "delta": shown_delta(cost.delta),
        "epsilon": shown_epsilon(cost.epsilons["tight"]),
        "epsilon (simple)": shown_epsilon(cost.epsilons["simple"]),
        "rho per person, bounded": cost.plan.bounded_rho,
    }
    return Table.of([row])


def conversion_sentence(settings: TripsSettings) -> tuple[str, ...]:
    """What the tight conversion of epsilon and delta would allow, where the simple one was used."""
    rho, other = settings.rho, settings.other_rho
    if rho is None or other is None:
        return ()
    less = 1 - math.sqrt(rho / other)
    return (
        f"The tight conversion allows rho {float(other):.4g} instead of {float(rho):.4g} "
        f"at the same epsilon and delta, with {100 * less:.0f} % less noise: "
        "privacy.conversion = 'tight'.",
    )


def words_on_noise(plan: Plan) -> str:
    """What was measured, and which counts follow from others."""
    if plan.histogram is not None:
        threshold = f"{plan.histogram.threshold:,}"
        return f"Cells with trips were measured; counts below {threshold} are not published."
    return (
        "Measured were the counts of the areas of every level that tells them apart. The shares "
        f"add to exactly 1.{_inferred(plan)}"
    )


def _inferred(plan: Plan) -> str:
    levels = [level for level in plan.inferred if level]
    if not levels:
        return ""
    names = " and ".join(plan.tree.level_name(level) for level in levels)
    return f" Not measured, since every node is an only child with its parent's count: {names}."


def delta_warning(settings: TripsSettings, n_trips: int | None) -> str | None:
    """A sentence if delta is no smaller than one over the persons; None if it is, or unknown.

    `n_trips` must be public: an invariant total, or a released one.
    """
    delta = settings.privacy.delta
    if delta is None or settings.privacy.epsilon is None or n_trips is None or n_trips <= 0:
        return None
    n_persons = math.ceil(n_trips / settings.privacy.trips_per_person)
    if delta * n_persons < 1:
        return None
    return (
        f"privacy.delta = {delta} is not below one over the number of persons: such a guarantee "
        "does not rule out that a person's trips are published outright, so choose a smaller one"
    )
