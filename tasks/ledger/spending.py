"""The guarantee of all draws of a dataset: rho, delta, and epsilon by their exact curve.

A curve is written as JSON of its parameters, in exact fractions: the kinds of noisy
counts, each as the power and c of its noise and the shift; the counts that every change moves; and
the choices, each with its repetitions and its alternatives. Counts are pairs of the place of a
kind and a number:

    {"kinds": [[2, "1/5", 1]], "changed": [[0, 2]], "choices": [[2, [[[0, 1]], [[0, 3]]]]]}

**By rho.** (rho, delta)-approximate zCDP adds up, also where the parameters of a draw were chosen
from earlier draws, as long as the sums stay within bounds that were fixed beforehand
([FullyAdaptive2023]). At a further delta', rho gives the epsilon of `accounting.epsilon_tight`.

**By the curve.** A draw whose noisy counts are known has a curve (`exact_curve`), and so has one of
epsilon-DP without a delta: its curve is at most that of a count with discrete Laplace noise that
has the two losses epsilon and -epsilon ([OptimalComposition2017]). The curves of all such draws
compose ([OptimalAccounting2022], theorem 10), provided that no draw's parameters were chosen from
earlier draws: a later curve must be the same for all earlier outcomes.

**Both.** Let the draws with curves be (e1, d1)-DP together, and the others (rho, d)-approximate
zCDP, hence (e2, d + d2)-DP with e2 the epsilon of rho at d2. All draws are then
(e1 + e2, d1 + d2 + d)-DP by basic composition ([AlgorithmicFoundations2014], theorem 3.16). d2 is
the fixed share `PART` of delta less the mechanisms' own. The conversion of the
whole rho is valid too, and the smaller of the two epsilons is reported.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from ..noise.distributions import IntegerDistribution
from .accounting import (
    BOUNDED,
    ONE_OF_SEVERAL,
    PURE_DP,
    TWO_RECORDS,
    UNBOUNDED,
    UNBOUNDED_OF_SEVERAL,
    Guarantee,
    compose,
    epsilon_tight,
    rho_from_epsilon_tight,
)
from .exact_curve import Counts, CurveTooExpensive, PrivacyCurve
from .loss_laws import ChangedCount
from .store import Damaged


def curve_text(curve: PrivacyCurve) -> str:
    """The text of a curve; `read_curve` gives an equal one."""
    kinds: dict[ChangedCount, int] = {}

    def pairs(counts: Counts) -> list[tuple[int, int]]:
        return [(kinds.setdefault(kind, len(kinds)), number) for kind, number in counts.items()]

    changed = pairs(curve.changed)
    alternatives = [json.dumps([pairs(counts) for counts in choice]) for choice in curve.choices]
    choices = [(times, json.loads(choice)) for choice, times in Counter(alternatives).items()]
    listed = [(kind.noise.power, str(kind.noise.c), kind.shift) for kind in kinds]
    return json.dumps({"kinds": listed, "changed": changed, "choices": choices})


def read_curve(text: str) -> PrivacyCurve:
    """The curve of a text of `curve_text`.

    Raises ValueError for another text.

    >>> curve = read_curve('{"kinds": [[2, "1/2", 1]], "changed": [[0, 2]], "choices": []}')
    >>> curve.rho
    Fraction(1, 1)
    """
    try:
        found = json.loads(text)
        kinds = [_kind(*fields) for fields in found["kinds"]]

        def counts(pairs: Iterable[tuple[int, int]]) -> Counts:
            return {kinds[place]: number for place, number in pairs}

        choices = [
            tuple(counts(pairs) for pairs in alternatives)
            for times, alternatives in found["choices"]
            for _ in range(times)
        ]
        return PrivacyCurve(counts(found["changed"]), choices)
    except (KeyError, IndexError, TypeError, ArithmeticError) as error:
        raise ValueError(f"no curve is written so: {error!r}") from error


def _kind(power: int, c: str, shift: int) -> ChangedCount:
    noise = IntegerDistribution(Fraction(c), power)
    if power not in (1, 2) or noise.c <= 0:
        raise ValueError("there is no such noise")
    return ChangedCount(noise, shift)


def compose_curves(curves: Iterable[PrivacyCurve]) -> PrivacyCurve:
    """The composed curve of several draws, whose worst choices are independent.

    Raises ValueError where there are more combinations of choices than are compared.
    """
    changed: Counter[ChangedCount] = Counter()
    choices = []
    for curve in curves:
        changed.update(curve.changed)
        for choice in curve.choices:
            first, *others = choice
            if others:
                choices.append(choice)
            else:
                changed.update(first)
    return PrivacyCurve(dict(changed), choices)


PART = Fraction(1, 64)
"""Share of delta for draws without a curve: small, as they matter where they are few."""

ROUNDED = 1 + 1e-12
"""Factor above the rounding errors of an epsilon computed in doubles."""

CHANGES = {BOUNDED: 1, ONE_OF_SEVERAL: 1, UNBOUNDED: 2, UNBOUNDED_OF_SEVERAL: 2, TWO_RECORDS: 2}
"""Steps between a draw's own neighbours that make up one person's change, where known."""


@dataclass(frozen=True)
class SpentDraw:
    """A draw's guarantee, its curve if known, and whether it was charged after results.

    after_results : whether a result from the dataset had been published by then, so
        that the draw's parameters may depend on it.

    Raises ValueError for a curve of more rho than the guarantee has.
    """

    guarantee: Guarantee
    curve: PrivacyCurve | None = None
    after_results: bool = True

    def __post_init__(self) -> None:
        if self.curve is not None and self.curve.rho > self.guarantee.bounded_rho:
            raise ValueError("a curve has more rho than the guarantee")

    @property
    def known(self) -> PrivacyCurve | None:
        """The curve, or under pure DP the bound for its epsilon, or None."""
        guarantee = self.guarantee
        if guarantee.delta:
            return None
        if self.curve is None and guarantee.definition == PURE_DP:
            times = CHANGES.get(guarantee.neighbors)
            if times:
                noise = IntegerDistribution(guarantee.parameter * times, 1)
                return PrivacyCurve({ChangedCount(noise): 1})
        return self.curve


@dataclass(frozen=True)
class Spending:
    """All draws from a dataset, possibly with further requested draws.

    >>> spending = Spending([SpentDraw(Guarantee("pure_dp", Fraction(1, 4)))] * 20)
    >>> delta = Fraction(1, 10**6)
    >>> round(spending.epsilon(delta), 2), round(epsilon_tight(spending.total.parameter, delta), 2)
    (4.89, 5.93)
    """

    draws: Sequence[SpentDraw]

    @cached_property
    def total(self) -> Guarantee:
        """The rho of bounded zCDP per person, and the mechanisms' own delta."""
        return compose(draw.guarantee for draw in self.draws)

    @property
    def stated_rho(self) -> Fraction:
        """As the rho of `total`, of all records that one person's change may change."""
        return sum((draw.guarantee.stated_rho for draw in self.draws), Fraction(0))

    @property
    def is_planned(self) -> bool:
        """Whether all draws were charged before any result, so that none can depend on one."""
        return not any(draw.after_results for draw in self.draws)

    @property
    def curve(self) -> PrivacyCurve | None:
        """The composed curve of the draws accounted by curve; None without such draws."""
        return self._by_curve[0]

    @cached_property
    def unknown(self) -> Fraction:
        """rho of the draws not accounted by curve."""
        _, places = self._by_curve
        others = (draw for place, draw in enumerate(self.draws) if place not in places)
        return compose(draw.guarantee for draw in others).parameter

    @cached_property
    def _by_curve(self) -> tuple[PrivacyCurve | None, frozenset[int]]:
        """The composed curve of the draws accounted by curve, and their places.

        These are all draws with a curve. With more combinations of choices than are compared, they
        are the draws of one choice, and as many others as possible, by descending rho.
        """
        curves = {place: draw.known for place, draw in enumerate(self.draws)}
        known = {place: curve for place, curve in curves.items() if curve is not None}
        try:
            together, places = compose_curves(known.values()), set(known)
        except CurveTooExpensive:
            together, places = compose_curves([]), set()
            for place, curve in sorted(known.items(), key=_choices_and_rho):
                with suppress(CurveTooExpensive):
                    together = compose_curves([together, curve])
                    places.add(place)
        return together if together.rho else None, frozenset(places)

    def epsilon(self, delta: Fraction) -> float:
        """The smaller epsilon at delta, by the curve or by rho, for runs that were planned.

        Infinite where the mechanisms' own deltas use up delta.
        """
        own = delta - self.total.delta
        if own <= 0:
            return math.inf
        by_rho = epsilon_tight(self.total.parameter, own)
        if self.curve is None:
            return by_rho
        of_unknown, part = self._beside(own)
        try:
            return min(by_rho, self.curve.epsilon_upper(own - part) + of_unknown)
        except ValueError:
            return by_rho  # The delta is too small for the curve.

    def delta_by_curve(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """A delta at epsilon by the curve, with delta to share out; 1 where none is known."""
        own = delta - self.total.delta
        if own <= 0 or self.curve is None:
            return Fraction(1)
        of_unknown, part = self._beside(own)
        at = math.nextafter(float(epsilon - Fraction(of_unknown)), 0.0)
        if at <= 0:
            return Fraction(1)
        return min(Fraction(1), self.total.delta + part + Fraction(self.curve.delta_upper(at)))

    def is_within(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Whether all draws are (epsilon, delta)-DP, by rho or by the curve, if runs were planned.

        Evaluates the curve once, or not at all where rho is enough; `epsilon` evaluates it often.
        """
        own = delta - self.total.delta
        if own > 0 and self.total.parameter <= rho_from_epsilon_tight(epsilon, own):
            return True
        return self.delta_by_curve(epsilon, delta) <= delta

    def _beside(self, own: Fraction) -> tuple[float, Fraction]:
        """Epsilon and delta of the draws without a curve, from a delta for all."""
        if not self.unknown:
            return 0.0, Fraction(0)
        part = own * PART
        return epsilon_tight(self.unknown, part) * ROUNDED, part


def _choices_and_rho(item: tuple[int, PrivacyCurve]) -> tuple[bool, Fraction]:
    """Sort key: draws of one choice first, then by descending rho."""
    _, curve = item
    return any(len(choice) > 1 for choice in curve.choices), -curve.rho


def spending_of(connection: sqlite3.Connection, dataset: str) -> Spending:
    """All draws from a dataset in the ledger; raises Damaged for rows that cannot be read."""
    rows = connection.execute(
        "SELECT draws.*, curves.curve FROM draws LEFT JOIN curves "
        "ON curves.run_id = draws.run_id AND curves.draw = draws.name WHERE dataset = ?",
        [dataset],
    )
    return Spending([_parse_draw(row) for row in rows])


def _parse_draw(row: sqlite3.Row) -> SpentDraw:
    guarantee = guarantee_of(row)
    try:
        curve = None if row["curve"] is None else read_curve(row["curve"])
        # Version 0.1 did not enter the time of the charge.
        return SpentDraw(guarantee, curve, row["after_results"] != 0)
    except ValueError:
        raise Damaged(f"the curve of draw {row['name']!r} of run {row['run_id']}") from None


def guarantee_of(row: Mapping[str, Any] | sqlite3.Row) -> Guarantee:
    """The native guarantee of a row; raises Damaged if the row contradicts itself."""
    name = f"draw {row['name']!r} of run {row['run_id']}"
    numbers = ("parameter", "delta", "bounded_factor")
    parameter, delta, factor = (parse_fraction(row[column], name) for column in numbers)
    stated = None if row["stated_factor"] is None else parse_fraction(row["stated_factor"], name)
    guarantee = Guarantee(row["definition"], parameter, row["neighbors"], delta, factor, stated)
    if guarantee.bounded_rho != parse_fraction(row["bounded_rho"], name):
        raise Damaged(f"bounded rho of {name}")
    return guarantee


def parse_fraction(text: str, what: str) -> Fraction:
    """Parse a fraction from the ledger; raises Damaged if the text is not one."""
    try:
        return Fraction(text)
    except (ValueError, TypeError, ZeroDivisionError):
        raise Damaged(f"a number of {what}") from None
