"""The cost of a run before it begins: one record a universe, common to all products."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from ..ledger.accounting import BOUNDED
from ..ledger.exact_curve import PrivacyCurve, known_epsilon
from ..ledger.plan import Measure, UniversePlan
from ..noise.distributions import DISCRETE_LAPLACE, distribution_of
from ..noise.quantiles import COVERAGE, is_too_wide, margin
from ..pages.document import Block, Section, Table
from ..pages.numbers import format_delta, format_epsilon, format_rho, format_upper_bound

PARTS = {"attributes": "{} of a record", "block_within": "area within {}"}
"""Kinds of parts of a record that an attacker may lack, in words: one attribute, or its area within
a known one."""

Epsilons = Mapping[str, Mapping[str, Any]]
"""Epsilons against an attacker who lacks a part of a record, by kind and by name."""


@dataclass(frozen=True)
class ExactEpsilons:
    """Exact epsilons of one part of a release, None if unknown.

    whole : for a record, by delta as a text. parts : for its parts, at the delta of the release's.
    """

    whole: Mapping[str, float | None] = field(default_factory=dict)
    parts: Epsilons = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """The cost of measuring one universe.

    between : the neighbours of the epsilons, if not the plan's.
    curve : the exact privacy curve between them; None if unknown.
    times : ratio of the loss between them to the plan's.
    called : the name of the cost, by default the universe's.
    parts : epsilons of parts of a record, by conversion.
    exact_parts : the same by the exact curve, which may take seconds.
    further, of_queries : additional figures of one product, for all and for each measure.
    """

    plan: UniversePlan
    curve: PrivacyCurve | None = None
    between: str = ""
    times: Fraction = Fraction(1)
    called: str = ""
    parts: Epsilons = field(default_factory=dict)
    exact_parts: Callable[[], Epsilons] = dict
    further: Mapping[str, Any] = field(default_factory=dict)
    of_queries: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        """Name of the universe or part that is charged."""
        return self.called or self.plan.universe

    @property
    def neighbors(self) -> str:
        """Neighbours for which the epsilons hold."""
        own = BOUNDED if self.plan.guarantee is None else self.plan.guarantee.neighbors
        return self.between or own

    @cached_property
    def epsilons(self) -> Mapping[str, float | str]:
        """Epsilons by the `tight` and the `simple` conversion of rho; infinite without noise."""
        return self.plan.epsilons(self.times)

    @cached_property
    def exact(self) -> float | str | None:
        """Epsilon by the exact curve; None if unknown."""
        return "inf" if self.plan.loss is None else known_epsilon(self.curve, self.plan.delta)

    @cached_property
    def exactly_within(self) -> Epsilons:
        """Exact epsilons of parts of a record; empty if unknown."""
        return self.exact_parts()

    @property
    def delta(self) -> Fraction | None:
        """Delta of the epsilons; None under pure differential privacy."""
        guarantee = self.plan.guarantee
        if self.plan.is_pure:
            return None if guarantee is None or not guarantee.delta else guarantee.delta
        return self.plan.delta

    @property
    def in_words(self) -> str:
        """Loss, epsilons and the ledger's rho, in one line."""
        plan = self.plan
        if plan.loss is None:
            return f"{plan.universe}: nothing is guaranteed, since there is no noise"
        loss = format_rho(plan.loss)
        tight, simple = map(format_epsilon, (self.epsilons["tight"], self.epsilons["simple"]))
        by_rho = f", epsilon {tight} at delta {format_delta(plan.delta)} (simple bound {simple})"
        exact = ""
        if isinstance(self.exact, float):
            at = format_delta(self.delta or plan.delta)
            exact = f", exactly {format_upper_bound(self.exact)} at delta {at}"
        return (
            f"{plan.universe}: {plan.mechanism.replace('_', ' ')}, {plan.symbol} {loss}"
            f"{'' if plan.is_pure else by_rho}{exact}; rho {format_rho(plan.bounded_rho)} of "
            "bounded zCDP in the ledger"
        )

    def to_json(self) -> dict[str, Any]:
        """The object of `spineflow budget --json`; fractions as strings."""
        guarantee = self.plan.guarantee
        native = self.neighbors if guarantee is None else guarantee.neighbors
        of_queries = self.of_queries or [{} for _ in self.plan.measured]
        exactly = self.exactly_within
        return {
            "universe": self.name,
            "mechanism": self.plan.mechanism,
            "neighbors": self.neighbors,
            "native": {self.plan.symbol: self.plan.stated_loss, "neighbors": native},
            "rho": self.plan.bounded_rho,
            "delta": None if self.delta is None else str(self.delta),
            "epsilon": {"exact": self.exact, **self.epsilons},
            **{kind: dict(self.parts.get(kind, {})) for kind in PARTS},
            **{f"{kind}_exact": dict(exactly[kind]) for kind in PARTS if exactly.get(kind)},
            **self.further,
            "queries": [
                {**_query(self.plan, measure), **own}
                for measure, own in zip(self.plan.measured, of_queries, strict=True)
            ],
        }


def work_out(costs: Iterable[Cost]) -> None:
    """Compute exact figures in parallel threads: their transforms release the lock."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda cost: (cost.exact, cost.exactly_within), costs))


def costs_to_json(costs: Mapping[str, Any]) -> dict[str, Any]:
    """The output of `spineflow budget --json`: costs by universe, or by name of several runs."""
    work_out(cost for cost in costs.values() if isinstance(cost, Cost))
    return {
        name: cost.to_json() if isinstance(cost, Cost) else costs_to_json(cost)
        for name, cost in costs.items()
    }


def margin_of(measure: Measure) -> int | None:
    """The smallest m such that noise is within -m and m with a probability of at least 95 %.

    0 without noise; None where the noise is too wide to compute it.
    """
    if measure.noise is None:
        return 0
    distribution = distribution_of(measure.noise)
    return None if is_too_wide(distribution) else margin(distribution, COVERAGE)


def _query(plan: UniversePlan, measure: Measure) -> dict[str, Any]:
    parameter = "0" if measure.noise is None else str(measure.noise.parameter)
    noise: dict[str, str | None] = {"sigma_squared": parameter}
    if plan.mechanism == DISCRETE_LAPLACE:
        noise = {"sigma_squared": None, "scale": parameter}
    return {
        "geolevel": measure.level,
        "query": measure.query,
        "regions": measure.areas,
        "share": str(measure.share),
        "moved": measure.moved,
        **noise,
        "margin_of_error": margin_of(measure),
    }


def noise_table(plan: UniversePlan) -> Table:
    """Cost and width of noise of every measure."""
    sensitivity = (
        "L1 sensitivity" if plan.mechanism == DISCRETE_LAPLACE else "squared L2 sensitivity"
    )
    rows = [
        {
            "level": own.place,
            "query": own.query,
            "areas": own.areas,
            f"share of {plan.symbol}": str(own.share),
            sensitivity: own.moved,
            "noise s.d.": own.deviation,
            "margin, 95 %": margin_of(own),
        }
        for own in plan.measured
    ]
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return Table.of([{name: row[name] for name in columns} for row in rows], "noise s.d.")


def costs_in_words(costs: Collection[Cost]) -> Iterator[Block | Section]:
    """The costs of each universe, its noise, and the protection of a part of a record."""
    work_out(costs)
    for cost in costs:
        blocks: list[Block] = [cost.in_words]
        if cost.plan.measured:
            blocks.append(noise_table(cost.plan))
        rows = [
            {
                "unknown to an attacker": part,
                "epsilon, exactly": None if exact is None else format_upper_bound(exact),
                "epsilon by rho": format_epsilon(by_rho),
            }
            for part, by_rho, exact in unknown_parts(cost, cost.exactly_within)
        ]
        blocks += [Table.of(rows)] if rows else []
        yield Section(cost.name, tuple(blocks))


def unknown_parts(
    cost: Cost, exact: Epsilons
) -> Iterator[tuple[str, float | str, float | str | None]]:
    """Parts of a record that an attacker may not know, with their epsilons by rho and exactly."""
    places = {own.level: own.place for own in cost.plan.measures}
    for kind, words in PARTS.items():
        for name, epsilon in cost.parts.get(kind, {}).items():
            place = places.get(name, name).replace("_", " ")
            yield words.format(place), epsilon, exact.get(kind, {}).get(name)
