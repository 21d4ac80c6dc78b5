"""What the adaptive mechanism guarantees, in one pass or in all: its plan by levels."""

from __future__ import annotations

from fractions import Fraction

from ...ledger.accounting import PURE_DP, SAFETAB_P, UNBOUNDED, ZCDP, Guarantee
from ...ledger.plan import Measure, UniversePlan
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from .mechanism import MechanismParameters

CHARGED_AS = "population groups"
"""Name of the one draw that all stages of all levels are charged as."""


def universe_plan(
    parameters: MechanismParameters,
    region_pass: str | None = None,
    measures: tuple[Measure, ...] = (),
) -> UniversePlan:
    """What a pass is measured with, or the whole run.

    Theorems 1 and 2 of [SafeTabP2025]: adding or removing one person costs the sum of the levels of
    a pass, and changing a person twice as much rho. Nobody is in both passes, so that the larger
    one counts for the run.
    """
    if region_pass is None:
        name, total = CHARGED_AS, parameters.total
    else:
        name, total = f"{region_pass.upper()} pass", parameters.total_of(region_pass)
    return plan_of(name, total, parameters, UNBOUNDED, SAFETAB_P, measures)


def plan_of(
    name: str,
    total: Fraction,
    parameters: MechanismParameters,
    neighbors: str,
    bounded_factor: Fraction,
    measures: tuple[Measure, ...] = (),
) -> UniversePlan:
    """The plan of noise of the parameters' kind that costs `total` between some neighbours."""
    definition, mechanism = ZCDP, DISCRETE_GAUSSIAN
    if parameters.is_pure:
        definition, mechanism = PURE_DP, DISCRETE_LAPLACE
    if parameters.infinite:
        return UniversePlan(name, mechanism, None, None, measures)
    guarantee = Guarantee(definition, total, neighbors, bounded_factor=bounded_factor)
    return UniversePlan(name, mechanism, guarantee, total, measures)


def bounded_epsilons(plan: UniversePlan) -> dict[str, float | str]:
    """Epsilon of changing one record within a pass, by both conversions of the rho that this costs;
    twice the native one under pure DP, too.
    """
    return plan.epsilons(SAFETAB_P)
