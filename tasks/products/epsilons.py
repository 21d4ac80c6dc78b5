"""Epsilons of a certificate: of every part at several deltas, and of parts of a record.

They follow from the conversions of rho, and from the exact curve where it is known.
`certificate.json` and the tables of its page have the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ledger.exact_curve import known_epsilon
from ..ledger.plan import UniversePlan
from ..pages.document import NONE, Table
from ..pages.numbers import format_delta, format_epsilon, format_upper_bound
from ..pages.template import table
from .budget import Cost, ExactEpsilons, unknown_parts
from .privacy_curves import Curves

Exact = Mapping[str, ExactEpsilons]
"""Exact epsilons by the name of a part; unknown ones are missing."""


def exact_epsilons(losses: Iterable[UniversePlan], curves: Curves | None) -> Exact:
    """The exact epsilons of parts whose curve is known, at the stated deltas."""
    known = {} if curves is None else curves.known
    return {
        loss.universe: ExactEpsilons(
            {
                str(own.delta): known_epsilon(known[loss.universe], own.delta)
                for own in loss.at_stated_deltas()
            }
        )
        for loss in losses
        if loss.universe in known
    }


def stated_epsilons(loss: UniversePlan, exact: Exact) -> dict[str, Any]:
    """The epsilons of a part at its own delta, and `at` every stated delta."""

    def row(own: UniversePlan) -> dict[str, Any]:
        found = own.epsilons()
        return {
            "delta": str(own.promised.delta + own.delta),
            "conversion": found["tight"],
            "simple": found["simple"],
            "exact": exact.get(own.universe, ExactEpsilons()).at(own.delta),
        }

    at = [row(own) for own in loss.at_stated_deltas()]
    return {"universe": loss.universe, **row(loss), "delta": str(loss.whole_delta), "at": at}


def stated_parts(costs: Iterable[Cost], exact: Exact, of: str) -> dict[str, dict[str, Any]]:
    """The epsilons of all `attributes` of a record, or of its `block_within`, by universe."""
    found: dict[str, dict[str, Any]] = {}
    for cost in costs:
        exactly = getattr(exact.get(cost.name, ExactEpsilons()), of)
        own = {
            name: {"conversion": by_rho, "exact": exactly.get(name)}
            for name, by_rho in getattr(cost, of).items()
        }
        found |= {cost.name: own} if own else {}
    return found


def epsilons_table(losses: Sequence[UniversePlan], exact: Exact) -> Table | None:
    """The epsilons of every part at every stated delta."""
    stated = [stated_epsilons(loss, exact) for loss in losses]
    return table(
        {
            "part": own["universe"],
            "at delta": format_delta(row["delta"]),
            **_format_epsilons(row["conversion"], row["exact"]),
            "epsilon (simple)": format_epsilon(row["simple"]),
        }
        for own in stated
        for row in own["at"]
    )


def parts_table(costs: Sequence[Cost], exact: Exact) -> Table | None:
    """The epsilons of the parts of a record that an attacker may not know."""
    return table(
        {"part": cost.name, "unknown to an attacker": part, **_format_epsilons(by_rho, exactly)}
        for cost in costs
        for part, by_rho, exactly in unknown_parts(cost, exact.get(cost.name, ExactEpsilons()))
    )


def _format_epsilons(by_rho: float | str, exact: float | str | None) -> dict[str, str]:
    own = NONE if exact is None else format_upper_bound(exact)
    return {"epsilon": format_epsilon(by_rho), "exact epsilon": own}
