"""The plan of a trips run as a file: made once, charged, and read by every step after that.

spine/trips/plan.json     mechanism, guarantee, the shares and squared sensitivities of the
                          measured levels, or the scale and the threshold of the histogram

Optimised shares come out of floating-point arithmetic that another version, or another machine,
may round otherwise; what has been charged is never worked out again.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from ...ledger.accounting import Guarantee
from ...runs.directory import RunDirectory
from ...runs.files import read_record, while_unchanged, write_text
from ..paths import plan_file
from ..workload.budget import LevelBudget
from ..workload.plan import Plan
from ..workload.stability import StabilityHistogram
from ..workload.tree import Tree


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write a plan in one step, without its tree, which has files of its own."""
    facts = {
        "mechanism": plan.mechanism,
        "guarantee": None if plan.guarantee is None else asdict(plan.guarantee),
        "budget": None if plan.budget is None else asdict(plan.budget),
        "histogram": None if plan.histogram is None else asdict(plan.histogram),
        "measures_all": plan.measures_all,
    }
    write_text(plan_file(run), json.dumps(facts, indent=2, default=str) + "\n")


@while_unchanged(lambda run, tree: plan_file(run), at_most=4)
def read_plan(run: RunDirectory, tree: Tree) -> Plan:
    """The plan of a run on its tree."""
    facts = read_record(plan_file(run))
    return Plan(
        facts["mechanism"],
        tree,
        _guarantee(facts["guarantee"]),
        _budget(facts["budget"]),
        _histogram(facts["histogram"]),
        facts["measures_all"],
    )


def _guarantee(facts: dict[str, Any] | None) -> Guarantee | None:
    if facts is None:
        return None
    exact = {name: Fraction(facts[name]) for name in ("parameter", "delta", "bounded_factor")}
    return Guarantee(**facts | exact)


def _budget(facts: dict[str, Any] | None) -> LevelBudget | None:
    if facts is None:
        return None
    return LevelBudget(
        _fraction(facts["rho"]),
        {int(level): Fraction(share) for level, share in facts["shares"].items()},
        {int(level): int(square) for level, square in facts["squared_sensitivities"].items()},
    )


def _histogram(facts: dict[str, Any] | None) -> StabilityHistogram | None:
    if facts is None:
        return None
    return StabilityHistogram(_fraction(facts["scale"]), facts["threshold"])


def _fraction(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)
