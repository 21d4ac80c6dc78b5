"""The plan of a trips run as a file: made once, charged, and read by every step after that.

spine/trips/plan.json     mechanism, guarantee, the shares and squared sensitivities of the
                          measured levels, or the scale and the threshold of the histogram

Optimised shares come out of floating-point arithmetic that another version, or another machine,
may round otherwise; what has been charged is never worked out again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ledger.accounting import Guarantee
from ...runs.directory import RunDirectory
from ...runs.files import read_values, while_unchanged, write_values
from ..paths import plan_file
from ..workload.budget import LevelBudget
from ..workload.plan import Plan
from ..workload.stability import StabilityHistogram
from ..workload.tree import Tree


@dataclass(frozen=True)
class _Kept:
    """What the file has of a plan: all but its tree, which has files of its own."""

    mechanism: str
    guarantee: Guarantee | None
    budget: LevelBudget | None
    histogram: StabilityHistogram | None
    measures_all: bool


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write a plan in one step."""
    kept = _Kept(plan.mechanism, plan.guarantee, plan.budget, plan.histogram, plan.measures_all)
    write_values(plan_file(run), kept)


@while_unchanged(lambda run, tree: plan_file(run), at_most=4)
def read_plan(run: RunDirectory, tree: Tree) -> Plan:
    """The plan of a run on its tree."""
    kept = read_values(plan_file(run), _Kept)
    return Plan(tree=tree, **vars(kept))
