"""Runs that are charged to a ledger, with little else than their draws."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from spineflow.tasks.ledger.accounting import Guarantee
from spineflow.tasks.ledger.charges import charge
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import Ledger


def draw(rho: Fraction = Fraction(1, 2), name: str = "persons") -> UniversePlan:
    return UniversePlan(name, "discrete_gaussian", Guarantee("zcdp", rho))


def charge_run(
    ledger: Ledger,
    run_id: str = "run-1",
    draws: Sequence[UniversePlan] | None = None,
    **changes: Any,
) -> bool:
    """Charge a run with these draws, by default one; `changes` are of `charge`'s."""
    asked = {
        "dataset": "ri2010",
        "product": "topdown",
        "inputs": {"persons": InputDigest("aa", ("bb", "cc"))},
        **changes,
    }
    return charge(ledger, run_id=run_id, draws=[draw()] if draws is None else draws, **asked)
