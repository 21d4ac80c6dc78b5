"""What the datasets of a ledger have spent, natively and composed, and what they may."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from fractions import Fraction

from .accounting import (
    Guarantee,
    compose,
    epsilon_simple,
    epsilon_tight,
)
from .charges import caps_of, guarantee_of
from .store import Ledger, reading

REPORT_DELTA = Fraction(1, 10**10)
"""Delta at which the epsilon of the zCDP that was spent is shown; the mechanisms' own add to it."""


def summary(ledger: Ledger) -> dict:
    """What every dataset has spent, by product, natively and composed; fractions as strings.

    `{"ledger", "cap", "delta_cap", "datasets": {name: {"cap", "remaining", "delta_cap",
    "remaining_delta", "rho", "stated_rho", "delta", "epsilon": {"delta", "tight", "simple"},
    "products": {product: {"rho", "delta", "draws": [...]}}}}}`, where `rho` is of bounded zCDP per
    person, `stated_rho` that of all records that a person's change may change, which is more where
    a draw is counted for one of several, `delta` the sum of the mechanisms' own, and `epsilon`
    holds at its own `delta`, which is that sum and `REPORT_DELTA`; it is `inf` where that is 1 or
    more. Each draw has its native `definition`, `parameter`, `neighbors` and `delta`, and the
    `folder` of its run, None where an earlier version charged it.
    """
    with reading(ledger) as connection:
        names = [row["name"] for row in connection.execute("SELECT name FROM datasets")]
        caps = {name: caps_of(connection, name) for name in sorted(names)}
        default = connection.execute("SELECT cap, delta_cap FROM ledger").fetchone()
        rows = connection.execute(
            "SELECT draws.*, directories.folder FROM draws LEFT JOIN directories USING (run_id) "
            "ORDER BY charged_at, name"
        ).fetchall()
        guarantees = {
            name: compose(guarantee_of(row) for row in rows if row["dataset"] == name)
            for name in caps
        }
    datasets = {}
    for name, own_caps in caps.items():
        own = [row for row in rows if row["dataset"] == name]
        spent = guarantees[name]
        datasets[name] = {
            "cap": _text(own_caps.rho),
            "remaining": _rest(own_caps.rho, spent.parameter),
            "delta_cap": _text(own_caps.delta),
            "remaining_delta": _rest(own_caps.delta, spent.delta),
            "rho": str(spent.parameter),
            "stated_rho": str(sum((guarantee_of(row).stated_rho for row in own), Fraction(0))),
            "delta": str(spent.delta),
            "epsilon": _epsilon(spent),
            "products": {
                product: _product_summary([row for row in own if row["product"] == product])
                for product in sorted({row["product"] for row in own})
            },
        }
    return {
        "ledger": str(ledger.path),
        "cap": default["cap"],
        "delta_cap": default["delta_cap"],
        "datasets": datasets,
    }


def _epsilon(spent: Guarantee) -> dict[str, float | str]:
    """Epsilon of (rho, delta)-approximate zCDP, at delta plus that of the conversion."""
    delta = spent.delta + REPORT_DELTA
    if delta >= 1:
        return {"delta": "1", "tight": "inf", "simple": "inf"}
    return {
        "delta": str(delta),
        "tight": epsilon_tight(spent.parameter, REPORT_DELTA),
        "simple": epsilon_simple(spent.parameter, REPORT_DELTA),
    }


def _product_summary(rows: Sequence[sqlite3.Row]) -> dict:
    spent = compose(guarantee_of(row) for row in rows)
    shown = (
        "run_id",
        "name",
        "mechanism",
        "definition",
        "parameter",
        "neighbors",
        "delta",
        "bounded_rho",
        "charged_at",
        "folder",
    )
    return {
        "rho": str(spent.parameter),
        "delta": str(spent.delta),
        "draws": [{column: row[column] for column in shown} for row in rows],
    }


def _text(cap: Fraction | None) -> str | None:
    return None if cap is None else str(cap)


def _rest(cap: Fraction | None, spent: Fraction) -> str | None:
    return None if cap is None else str(cap - spent)
