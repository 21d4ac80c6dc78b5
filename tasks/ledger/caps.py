"""Caps of draws from a dataset: of rho, of delta, and of epsilon at a delta.

Caps are enforced independently, and a charge that would pass one is refused before anything is
drawn. A dataset's cap replaces the ledger's own cap of the same kind.

**rho** and **delta** hold however runs are chosen, also by the results of earlier ones: the sums
of approximate zCDP stay valid for parameters that are chosen by earlier outcomes, as long as they
stay within bounds that were fixed before ([FullyAdaptive2023]).

**Epsilon at a delta.** Privacy curves have no such theorem: a reader of a result may choose among
runs that keep within epsilon each, such that the choice does not. So the ledger enters for
every draw whether a result from the dataset had been published when it was charged
(`SpentDraw.after_results`). Noise that is not recorded as published is unseen (`charging`), and the
first draws, A, are thus fixed for all outcomes.

- While all draws are of A: by their curve, or by rho, whichever is better.
- After that: by rho alone. The cap amounts to the largest rho whose conversion at the delta gives
  the epsilon, less the delta reserved for the mechanisms' own deltas: the cap of delta, or the
  delta of A. Both are fixed before the first result.

This is sound: A is fixed, and so is whether its rho is within the cap's rho. If it is, the sum
stays within, and bounds all runs. If it is not, nothing is added to A any more,
and its curve bounds the loss.

**Planned.** A cap may be declared for runs that were planned, parameters and all, before the first
result. Then the curve of all draws counts. No ledger can verify this: the person who sets the cap
asserts it, and the epsilon depends on it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..runs.errors import BudgetRefused, InputRefused
from .accounting import Guarantee, epsilons, rho_from_epsilon_tight
from .plan import REPORT_DELTA
from .spending import Spending, SpentDraw, parse_fraction, spending_of
from .store import Damaged, Ledger, reading, writing

MOST_DELTA = Fraction(1)
"""A composed delta of this or more guarantees nothing and is refused under any caps."""

_NOTHING = Fraction(0)

PLANNED = "planned"
"""Word that the ledger has after a cap of epsilon for planned runs."""


@dataclass(frozen=True)
class EpsilonCap:
    """A cap of epsilon at a delta; `planned` if all runs are planned before the first result."""

    epsilon: Fraction
    delta: Fraction
    planned: bool = False

    def __str__(self) -> str:
        """Text in the ledger, such as 33/2@1/10000000000 planned."""
        return f"{self.epsilon}@{self.delta}{f' {PLANNED}' if self.planned else ''}"

    @property
    def shown(self) -> str:
        """For people."""
        plan = ", of runs planned beforehand" if self.planned else ""
        return f"epsilon {float(self.epsilon):.6g} at delta {float(self.delta):.6g}{plan}"

    def smaller(self, other: EpsilonCap | None) -> EpsilonCap:
        """A cap that is met only if both are."""
        if other is None:
            return self
        epsilon, delta = min(self.epsilon, other.epsilon), min(self.delta, other.delta)
        return EpsilonCap(epsilon, delta, self.planned and other.planned)

    def is_kept(self, spending: Spending, delta_cap: Fraction | None) -> bool:
        """Whether draws are within the cap, given the dataset's cap of delta."""
        if self.planned or spending.is_planned:
            return spending.is_within(self.epsilon, self.delta)
        kept = _reserved_delta(spending, delta_cap)
        largest = self.largest_rho(kept)
        return spending.total.delta <= kept and spending.total.parameter <= largest

    def largest_rho(self, kept: Fraction) -> Fraction:
        """The rho that the cap amounts to, with delta `kept` for the mechanisms' own deltas."""
        if kept >= self.delta:
            return _NOTHING
        return rho_from_epsilon_tight(self.epsilon, self.delta - kept)


@dataclass(frozen=True)
class Caps:
    """Caps of a dataset: rho of bounded zCDP per person, delta, and epsilon at a delta; None for
    no cap.
    """

    rho: Fraction | None = None
    delta: Fraction | None = None
    epsilon: EpsilonCap | None = None

    def smaller(self, other: Caps) -> Caps:
        """Caps that are kept only where both are."""
        epsilon = other.epsilon if self.epsilon is None else self.epsilon.smaller(other.epsilon)
        return Caps(
            _smaller_cap(self.rho, other.rho), _smaller_cap(self.delta, other.delta), epsilon
        )


def caps_of(connection: sqlite3.Connection, dataset: str | None) -> Caps:
    """The caps of a dataset: its own, or else the ledger's; the latter alone for None."""
    rho, delta, epsilon = connection.execute(
        "SELECT coalesce(datasets.cap, ledger.cap), "
        "coalesce(datasets.delta_cap, ledger.delta_cap), "
        "coalesce(datasets.epsilon_cap, ledger.epsilon_cap) "
        "FROM ledger LEFT JOIN datasets ON datasets.name = ?",
        [dataset],
    ).fetchone()
    return Caps(
        None if rho is None else parse_fraction(rho, "a cap"),
        None if delta is None else parse_fraction(delta, "a cap"),
        None if epsilon is None else epsilon_cap(epsilon),
    )


def spent_and_caps(ledger: Ledger, dataset: str) -> tuple[Guarantee, Caps]:
    """Composed guarantee of all draws from a dataset by rho, and the dataset's caps."""
    with reading(ledger) as connection:
        return spending_of(connection, dataset).total, caps_of(connection, dataset)


def epsilon_cap(text: str) -> EpsilonCap:
    """Parse a cap of epsilon from the ledger; raises Damaged if the text is not one."""
    cap, _, word = str(text).partition(" ")
    epsilon, _, delta = cap.partition("@")
    found = EpsilonCap(
        parse_fraction(epsilon, "a cap"), parse_fraction(delta, "a cap"), word == PLANNED
    )
    if found.epsilon <= 0 or not 0 < found.delta < 1 or word not in ("", PLANNED):
        raise Damaged("a cap of epsilon")
    return found


def set_caps(ledger: Ledger, dataset: str | None, caps: Caps) -> None:
    """Set the caps of a dataset, or with None the default for datasets without own caps. A cap of
    None leaves the present one unchanged.

    Raises InputRefused for a cap that is not a positive fraction, BudgetRefused for a dataset's cap
    below its present spending. A dataset without an own cap that has spent more than the default
    can spend nothing further.
    """
    _refuse_no_fractions(caps)
    with writing(ledger) as connection:
        if dataset is not None:
            _refuse_below_spent(connection, dataset, caps)
        enter_caps(connection, dataset, caps)


def enter_caps(connection: sqlite3.Connection, dataset: str | None, caps: Caps) -> None:
    """Enter caps of a dataset, which may be new, or of the ledger."""
    if dataset is not None:
        connection.execute("INSERT OR IGNORE INTO datasets (name) VALUES (?)", [dataset])
    table, rows = ("ledger", "") if dataset is None else ("datasets", "WHERE name = :dataset")
    found = (("cap", caps.rho), ("delta_cap", caps.delta), ("epsilon_cap", caps.epsilon))
    for column, cap in [entry for entry in found if entry[1] is not None]:
        update = f"UPDATE {table} SET {column} = :cap {rows}"
        connection.execute(update, {"cap": str(cap), "dataset": dataset})


def _refuse_below_spent(connection: sqlite3.Connection, dataset: str, caps: Caps) -> None:
    spending = spending_of(connection, dataset)
    spent = spending.total
    for cap, known, what in (
        (caps.rho, spent.parameter, "rho"),
        (caps.delta, spent.delta, "delta"),
    ):
        if cap is not None and cap < known:
            raise BudgetRefused(
                f"dataset {dataset!r} has spent {what} {known} (about {float(known):.6g}); "
                f"a cap of {cap} is below that, so set it higher"
            )
    if caps.epsilon is not None and spending.draws:
        delta = caps.delta or caps_of(connection, dataset).delta
        if not caps.epsilon.is_kept(spending, delta):
            raise BudgetRefused(
                f"dataset {dataset!r} has spent rho {float(spent.parameter):.6g} and delta "
                f"{float(spent.delta):.6g}; a cap of {caps.epsilon.shown} is below that, so set "
                "it higher"
            )


def check_caps(connection: sqlite3.Connection, dataset: str, asked: Sequence[SpentDraw]) -> None:
    """Raise BudgetRefused if the requested draws would pass a cap, or a delta of 1."""
    caps = caps_of(connection, dataset)
    before = spending_of(connection, dataset)
    after = Spending([*before.draws, *asked])
    spent, needed, total = before.total, Spending(asked).total, after.total
    for what, cap, was, own, now in (
        ("rho", caps.rho, spent.parameter, needed.parameter, total.parameter),
        ("delta", caps.delta, spent.delta, needed.delta, total.delta),
    ):
        if cap is not None and now > cap:
            raise BudgetRefused(
                f"dataset {dataset!r} has spent {what} {float(was):.6g} of its cap {cap}, and this "
                f"run needs {own} (about {float(own):.6g}); lower its {what}, or raise the cap "
                "with `spineflow ledger set-cap`"
            )
    if total.delta >= MOST_DELTA:
        raise BudgetRefused(
            f"all draws from dataset {dataset!r} would have a delta of {float(total.delta):.6g} "
            "together, which guarantees nothing; lower the delta of this run"
        )
    if caps.epsilon is not None and not caps.epsilon.is_kept(after, caps.delta):
        raise BudgetRefused(_cap_message(dataset, caps.epsilon, caps.delta, before, after))


def _cap_message(
    dataset: str, cap: EpsilonCap, delta_cap: Fraction | None, before: Spending, after: Spending
) -> str:
    """Message for a passed cap of epsilon: the cap, its remainder, and the remedy."""
    spent = before.total
    is_by_curve = cap.planned or after.is_planned
    kept = after.total.delta if is_by_curve else _reserved_delta(after, delta_cap)
    remedy = "or raise the cap with `spineflow ledger set-cap`"
    if after.total.delta > kept:
        return (
            f"dataset {dataset!r} has a cap of {cap.shown}, of which no delta is kept for this "
            f"run's own, {float(after.total.delta - spent.delta):.6g}; set a cap of delta, "
            f"{remedy}"
        )
    left = max(cap.largest_rho(kept) - spent.parameter, _NOTHING)
    sure = f"lower its rho ({float(left):.6g} would surely pass)" if left else "lower its rho"
    if is_by_curve and after.curve is not None and not after.unknown:
        found = float(after.delta_by_curve(cap.epsilon, cap.delta))
        how = f"all draws would have delta {found:.3g} at that epsilon with this run"
    else:
        needed = float(after.total.parameter - spent.parameter)
        how = (
            "where results are published, or noise is not known, rho counts by its conversion, and "
            f"this run needs rho {needed:.6g} of the {float(left):.6g} left"
        )
    return (
        f"dataset {dataset!r} has spent rho {float(spent.parameter):.6g} under a cap of "
        f"{cap.shown}: {how}; {sure}, {remedy}"
    )


def _reserved_delta(spending: Spending, delta_cap: Fraction | None) -> Fraction:
    """The delta reserved for the mechanisms' own, fixed before the first result."""
    if delta_cap is not None:
        return delta_cap
    first = Spending([draw for draw in spending.draws if not draw.after_results])
    return first.total.delta


def _refuse_no_fractions(caps: Caps) -> None:
    numbers = {"cap": caps.rho, "cap of delta": caps.delta}
    if caps.epsilon is not None:
        numbers |= {"cap of epsilon": caps.epsilon.epsilon, "its delta": caps.epsilon.delta}
    for what, number in numbers.items():
        is_exact = isinstance(number, int | Fraction) and not isinstance(number, bool)
        if number is not None and not (is_exact and number > 0):
            raise InputRefused(
                f"the {what} is {number!r}; give a positive exact fraction such as 3/2"
            )


def _smaller_cap(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """The smaller of two caps; None is no cap."""
    return min((cap for cap in (one, other) if cap is not None), default=None)


_DRAWS = """
SELECT product, run_id, name, mechanism, definition, parameter, neighbors, delta, bounded_rho,
charged_at, folder FROM draws LEFT JOIN directories USING (run_id) WHERE dataset = ?
ORDER BY charged_at, name"""


def summary(ledger: Ledger, *, is_exact: bool = False, only: str | None = None) -> dict:
    """Spending of every dataset, or of `only` one, by product, native and composed; fractions as
    strings.

    `{"ledger", "cap", "delta_cap", "epsilon_cap", "datasets": {name: {"cap", "remaining",
    "delta_cap", "remaining_delta", "epsilon_cap", "rho", "stated_rho", "delta", "epsilon":
    {"delta", "tight", "simple", "exact"}, "products": {product: {"rho", "delta", "draws":
    [...]}}}}}`. `rho` is of bounded zCDP per person; `stated_rho` covers all records that a
    person's change may change, which is more where a draw is counted for one of several; `delta` is
    the sum of the mechanisms' own. `epsilon` is at its own `delta`, which is this sum plus
    `REPORT_DELTA`; it is `inf` where that is 1 or more. `epsilon["exact"]` follows from the curve
    of all draws (`spending`), for runs planned before the first result; it is None where no
    curve is known or the curve gives no less than rho, and unless `is_exact`, which takes seconds.
    `epsilon_cap` is None or `{"epsilon", "delta", "planned"}`. Each draw has its native
    `definition`, `parameter`, `neighbors` and `delta`, and the `folder` of its run, None where an
    earlier version charged it.
    """
    with reading(ledger) as connection:
        names = sorted(row["name"] for row in connection.execute("SELECT name FROM datasets"))
        found = {
            name: (
                caps_of(connection, name),
                spending_of(connection, name),
                connection.execute(_DRAWS, [name]).fetchall(),
            )
            for name in names
            if only in (None, name)
        }
        default = caps_of(connection, None)
    datasets = {}
    for name, (caps, spending, rows) in found.items():
        products: dict[str, list[dict]] = {}
        for draw in map(dict, rows):
            products.setdefault(draw.pop("product"), []).append(draw)
        total = spending.total
        datasets[name] = {
            **_caps(caps),
            "remaining": _remaining_cap(caps.rho, total.parameter),
            "remaining_delta": _remaining_cap(caps.delta, total.delta),
            "rho": str(total.parameter),
            "stated_rho": str(spending.stated_rho),
            "delta": str(total.delta),
            "epsilon": _epsilon(spending, is_exact),
            "products": {product: _product(products[product]) for product in sorted(products)},
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
    return {
        "cap": _remaining_cap(caps.rho, _NOTHING),
        "delta_cap": _remaining_cap(caps.delta, _NOTHING),
        "epsilon_cap": epsilon,
    }


def _epsilon(spending: Spending, is_exact: bool) -> dict[str, float | str | None]:
    """Epsilon of (rho, delta)-approximate zCDP, at delta plus `REPORT_DELTA`."""
    rho, delta = spending.total.parameter, spending.total.delta + REPORT_DELTA
    if delta >= 1:
        return {"delta": "1", "tight": "inf", "simple": "inf", "exact": None}
    by_rho = epsilons(rho, REPORT_DELTA)
    exact = spending.epsilon(delta) if is_exact else math.inf
    return {
        "delta": str(delta),
        **by_rho,
        "exact": exact if exact < by_rho["tight"] else None,
    }


def _product(draws: Sequence[dict]) -> dict:
    rho, delta = (
        sum((Fraction(draw[column]) for draw in draws), _NOTHING)
        for column in ("bounded_rho", "delta")
    )
    return {"rho": str(rho), "delta": str(delta), "draws": draws}


def _remaining_cap(cap: Fraction | None, spent: Fraction) -> str | None:
    return None if cap is None else str(cap - spent)
