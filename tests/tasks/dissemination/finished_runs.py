"""Runs as their registration and their archive read them, without a run."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from spineflow.tasks.ledger.accounting import ZCDP, Guarantee
from spineflow.tasks.ledger.plan import Measure, UniversePlan
from spineflow.tasks.noise.distributions import Noise
from spineflow.tasks.products.plan import ExactFact, Plan, Statement, write_plan
from spineflow.tasks.runs.directory import RunDirectory

PERSONS, UNITS = Fraction(293764, 114921), Fraction(11417641, 152349649)


def universe(name: str, loss: Fraction, definition: str = ZCDP) -> UniversePlan:
    mechanism = "discrete_gaussian" if definition == ZCDP else "discrete_laplace"
    measure = Measure(name, Noise(mechanism, 1 / loss), query="total", moved=2, areas=1, answers=1)
    guarantee = Guarantee(definition, loss)
    return UniversePlan(name, mechanism, guarantee, loss, (measure,))


def plan_of(*universes: UniversePlan) -> Plan:
    together = "They add up." if len(universes) > 1 else ""
    statement = Statement(None, ("Every record.",), ("One changes.",), universes, together)
    facts = (ExactFact("states", "the population of every state is exact"),)
    return Plan("topdown", "ruritania", universes, statement, facts)


def finished(folder: Path, plan: Plan, **changes: Any) -> RunDirectory:
    """A run directory with what registration reads: its plan and its certificate."""
    run = RunDirectory(folder)
    run.release.mkdir(parents=True)
    write_plan(run, plan)
    losses = plan.statement.losses
    draw = {"run_id": "one", "product": plan.product}
    certificate = {
        **plan.to_json(),
        "epsilon": [
            {
                "universe": own.universe,
                "conversion": own.epsilon,
                "delta": str(own.delta),
                "exact": None,
            }
            for own in losses
        ],
        "attributes": {},
        "ledger": {"rho": "3", "draws": [draw for _ in losses]},
        "checks": [{"name": "bounds_hold"}],
        "files": {"mdf_persons.csv": {}},
        "run": {
            "run_id": "one",
            "created": "2026-11-29T08:00:00Z",
            "code_version": "c0de",
            "settings_digest": "5e77",
            "input_digests": {"persons": "d16e"},
        },
    }
    path = run.release / "certificate.json"
    path.write_text(json.dumps(certificate | changes), encoding="utf-8")
    return run
