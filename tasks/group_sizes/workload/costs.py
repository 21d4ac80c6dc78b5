"""What a group-sizes run would cost."""

from __future__ import annotations

from typing import Any

from spineflow.tasks.group_sizes.workload.mechanisms import NOISE, PROVEN
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, Guarantee


def guarantees(plan: Plan) -> bool:
    """Whether a plan's noise is known to protect anybody."""
    return plan.epsilon is not None and plan.calibration == PROVEN


def guarantee_of(plan: Plan) -> Guarantee:
    """What measuring all levels guarantees: epsilon of pure differential privacy.

    The levels' parts of epsilon add up. The scales are calibrated to the neighbours of the plan:
    bounded, where a person moves between groups, or unbounded, where one joins or leaves a group.
    Raises ValueError for a plan that guarantees nothing: without noise, or of the published scale.
    """
    if not guarantees(plan):
        raise ValueError("a plan without noise, or of the published scale, guarantees nothing")
    return Guarantee(PURE_DP, plan.epsilon, BOUNDED if plan.bounded else UNBOUNDED)


def budget_report(plan: Plan) -> dict[str, Any]:
    """What `spineflow budget --json` prints; fractions as strings.

    `rho` is the bounded zCDP figure that epsilon implies, infinite for a plan that guarantees
    nothing, and `neighbors` says what epsilon is for. Attributes and places within a region are not
    protected by parts of it: a person's group is counted at every level.
    """
    infinite = plan.epsilon is None
    epsilon = "inf" if infinite else float(plan.epsilon)
    return {
        "mechanism": plan.mechanism,
        "vector": plan.vector,
        "noise": NOISE,
        "calibration": plan.calibration,
        "neighbors": BOUNDED if plan.bounded else UNBOUNDED,
        "rho": str(guarantee_of(plan).bounded_rho) if guarantees(plan) else "inf",
        "delta": None,
        "epsilon": {"tight": epsilon, "simple": epsilon},
        "attributes": {},
        "block_within": {},
        "queries": [
            {
                "geolevel": level.level,
                "query": plan.vector,
                "regions": level.n_regions,
                "share": str(level.share),
                "sensitivity": level.sensitivity,
                "sigma_squared": None,
                "scale": None if level.scale is None else str(level.scale),
            }
            for level in plan.levels
        ],
    }
