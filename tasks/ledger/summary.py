"""What the datasets of a ledger have spent, natively and composed, and what they may."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from fractions import Fraction

from .accounting import compose, epsilon_simple, epsilon_tight
from .caps import Caps, caps_of
from .plan import REPORT_DELTA
from .spending import Spending, guarantee_of, spending_of
from .store import Ledger, reading


def summary(ledger: Ledger, *, is_exact: bool = False, only: str | None = None) -> dict:
    """What every dataset has spent, or `only` one, by product, natively and composed; fractions as
    strings.

    `{"ledger", "cap", "delta_cap", "epsilon_cap", "datasets": {name: {"cap", "remaining",
    "delta_cap", "remaining_delta", "epsilon_cap", "rho", "stated_rho", "delta", "epsilon":
    {"delta", "tight", "simple", "exact"}, "products": {product: {"rho", "delta", "draws":
    [...]}}}}}`, where `rho` is of bounded zCDP per person, `stated_rho` that of all records that a
    person's change may change, which is more where a draw is counted for one of several, `delta`
    the sum of the mechanisms' own, and `epsilon` holds at its own `delta`, which is that sum and
    `REPORT_DELTA`; it is `inf` where that is 1 or more. `epsilon["exact"]` is that by the curve of
    all draws (`spending`), for runs that were planned before the first result; it is None where no
    curve is known or rho tells as much, and unless `is_exact`, since it takes seconds.
    `epsilon_cap` is None or `{"epsilon", "delta", "planned"}`. Each draw has its native
    `definition`, `parameter`, `neighbors` and `delta`, and the `folder` of its run, None where an
    earlier version charged it.
    """
    with reading(ledger) as connection:
        found = sorted(row["name"] for row in connection.execute("SELECT name FROM datasets"))
        names = [name for name in found if only in (None, name)]
        caps = {name: caps_of(connection, name) for name in names}
        default = caps_of(connection, None)
        rows = connection.execute(
            "SELECT draws.*, directories.folder FROM draws LEFT JOIN directories USING (run_id) "
            "ORDER BY charged_at, name"
        ).fetchall()
        spendings = {name: spending_of(connection, name) for name in names}
    datasets = {}
    for name, spending in spendings.items():
        own = [row for row in rows if row["dataset"] == name]
        datasets[name] = {
            **_caps(caps[name]),
            "remaining": _rest(caps[name].rho, spending.total.parameter),
            "remaining_delta": _rest(caps[name].delta, spending.total.delta),
            "rho": str(spending.total.parameter),
            "stated_rho": str(sum((guarantee_of(row).stated_rho for row in own), Fraction(0))),
            "delta": str(spending.total.delta),
            "epsilon": _epsilon(spending, is_exact),
            "products": {
                product: _product_summary([row for row in own if row["product"] == product])
                for product in sorted({row["product"] for row in own})
            },
        }
    return {"ledger": str(ledger.path), **_caps(default), "datasets": datasets}


def _caps(caps: Caps) -> dict:
    epsilon = None
    if caps.epsilon is not None:
        epsilon = {
            "epsilon": str(caps.epsilon.epsilon),
            "delta": str(caps.epsilon.delta),
            "planned": caps.epsilon.planned,
        }
    return {"cap": _text(caps.rho), "delta_cap": _text(caps.delta), "epsilon_cap": epsilon}


def _epsilon(spending: Spending, is_exact: bool) -> dict[str, float | str | None]:
    """Epsilon of (rho, delta)-approximate zCDP, at delta plus that of the conversion."""
    rho, delta = spending.total.parameter, spending.total.delta + REPORT_DELTA
    if delta >= 1:
        return {"delta": "1", "tight": "inf", "simple": "inf", "exact": None}
    tight = epsilon_tight(rho, REPORT_DELTA)
    exact = spending.epsilon(delta) if is_exact else tight
    return {
        "delta": str(delta),
        "tight": tight,
        "simple": epsilon_simple(rho, REPORT_DELTA),
        "exact": exact if exact < tight else None,
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
