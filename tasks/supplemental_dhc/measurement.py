"""The charged plan of a run of the supplemental tables, and its noisy counts."""

from __future__ import annotations

import math

from ..ledger.accounting import UNBOUNDED
from ..products.budget import Cost
from ..products.measurement import publish_measures
from ..products.plan import ExactFact, Plan, Statement
from ..runs.directory import RunDirectory
from .ingest import plan_of as queries_of
from .ingest import public_areas, read_areas, read_plan, true_counts
from .plan import CONFIDENCE, UNIVERSE, answers_of, areas_file, exact_curve, margin_of
from .settings import SupplementalDhcSettings

EXACT = (ExactFact("areas", "which areas there are"),)
"""The declared facts that the release rests on."""


STATEMENT = Statement(
    None,
    ("Protected is every person: whether there is one, and who lives with whom.",),
    (
        "The guarantee compares two censuses that differ in this: one record of a person is "
        "there or not, and with it up to two records of housing units come or go, a record that "
        "changes being one that goes and one that comes. Moving or changing a person is removing "
        "one and adding one.",
    ),
)
"""The guarantee for one person, who is counted or not."""


def plan_of(settings: SupplementalDhcSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and public geography; margins are of 90 %."""
    measured = queries_of(settings, public_areas(settings) if run is None else read_areas(run))
    of_queries = [
        {
            "rho": str(rho),
            "sensitivity": math.isqrt(own.moved or 0),
            "margin": None if own.noise is None else round(margin_of(own.noise.variance), 2),
        }
        for rho, own in zip(settings.rhos.values(), measured.measures, strict=True)
    ]
    plan = Plan.of(
        settings,
        [Cost(measured, exact_curve(measured), UNBOUNDED, of_queries=of_queries)],
        STATEMENT,
        EXACT,
        question="whether this one is in a household or nowhere",
        coverage=CONFIDENCE,
    )
    if run is None:
        return plan
    return plan.decided_by(run, [areas_file(run)], [run.histogram(UNIVERSE)])


def measure_level(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> None:
    """Measure and publish all queries of a level; raises as `single_draw`."""
    plan, areas = read_plan(run), read_areas(run)
    values = answers_of(plan, level, true_counts(run, areas, level))
    publish_measures(run, settings, plan, level, areas.regions[level], values)
