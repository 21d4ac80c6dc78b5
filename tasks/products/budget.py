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

Epsilons = Mapping[str, Any]
"""Epsilons against an attacker who lacks one attribute of a record, or its area within a known one,
by name.
"""


@dataclass(frozen=True)
class ExactEpsilons:
    """Exact epsilons of one part of a release, None if unknown.

    whole : for a record, by delta as a text. attributes, block_within : for one of its attributes,
        and for its block within a known geounit of a level, at the delta of the part.
    """

    whole: Mapping[str, float | None] = field(default_factory=dict)
    attributes: Epsilons = field(default_factory=dict)
    block_within: Epsilons = field(default_factory=dict)

    def at(self, delta: Fraction) -> float | None:
        """Epsilon of a record at a delta, without a mechanism's own delta."""
        return self.whole.get(str(delta))


@dataclass(frozen=True)
class Cost:
    """The cost of measuring one universe.

    between : the neighbours of the epsilons, if not the plan's.
    curve : the exact privacy curve between them; None if unknown.
    times : ratio of the loss between them to the plan's.
    called : the name of the cost, by default the universe's.
    attributes, block_within : epsilon, by conversion, of an attacker who lacks one attribute of a
        record, or its block where the geounit of a level is known.
    exact_parts : both by the exact curve, which may take seconds.
    further, of_queries : additional figures of one product, for all and for each measure.
    """

    plan: UniversePlan
    curve: PrivacyCurve | None = None
    between: str = ""
    times: Fraction = Fraction(1)
    called: str = ""
    attributes: Epsilons = field(default_factory=dict)
    block_within: Epsilons = field(default_factory=dict)
    exact_parts: Callable[[], ExactEpsilons] = ExactEpsilons
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
    def exactly_within(self) -> ExactEpsilons:
        """Exact epsilons of attributes and blocks; empty if unknown."""
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
            "attributes": dict(self.attributes),
            "block_within": dict(self.block_within),
            **({"attributes_exact": dict(exactly.attributes)} if exactly.attributes else {}),
            **({"block_within_exact": dict(exactly.block_within)} if exactly.block_within else {}),
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
    cost: Cost, exact: ExactEpsilons
) -> Iterator[tuple[str, float | str, float | str | None]]:
    """Parts of a record that an attacker may not know, with their epsilons by rho and exactly."""
    places = {own.level: own.place for own in cost.plan.measures}
    for words, by_rho, exactly in (
        ("{} of a record", cost.attributes, exact.attributes),
        ("area within {}", cost.block_within, exact.block_within),
    ):
        for name, epsilon in by_rho.items():
            place = places.get(name, name).replace("_", " ")
            yield words.format(place), epsilon, exactly.get(name)
