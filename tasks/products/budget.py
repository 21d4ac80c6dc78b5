"""What a run costs before it begins: one record a universe, the same for every product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ..ledger.accounting import BOUNDED
from ..ledger.exact_curve import PrivacyCurve, known_epsilon
from ..ledger.plan import Measure, UniversePlan
from ..noise.margins import COVERAGE, distribution_of
from ..noise.mechanisms import DISCRETE_LAPLACE
from ..noise.quantiles import is_too_wide, margin
from ..pages.document import NONE, Block, Section, Table
from ..pages.numbers import shown_bound, shown_delta, shown_epsilon, shown_rho
from .plan import Plan


@dataclass(frozen=True)
class Cost:
    """What measuring one universe costs.

    neighbors : between which the epsilons hold.
    epsilons : by the `tight` and the `simple` conversion of a rho; infinite without noise.
    exact : epsilon by the exact curve; None where it is not known.
    attributes, block_within : epsilon, by conversion, of an attacker who lacks one attribute of a
        record, or its block where the geounit of a level is known.
    further, of_queries : figures that one product has besides, of all and of each measure.
    """

    plan: UniversePlan
    neighbors: str
    epsilons: Mapping[str, float | str]
    exact: float | str | None
    attributes: Mapping[str, float | str] = field(default_factory=dict)
    block_within: Mapping[str, float | str] = field(default_factory=dict)
    further: Mapping[str, Any] = field(default_factory=dict)
    of_queries: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(
        cls, plan: UniversePlan, curve: PrivacyCurve | None, neighbors: str = "", **further: Any
    ) -> Cost:
        """The cost of a plan whose exact curve between its neighbours is known, or None."""
        exact = "inf" if plan.loss is None else known_epsilon(curve, plan.delta)
        own = BOUNDED if plan.guarantee is None else plan.guarantee.neighbors
        return cls(plan, neighbors or own, plan.epsilons(), exact, **further)

    @property
    def delta(self) -> Fraction | None:
        """At which the epsilons hold; None of pure differential privacy."""
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
        loss = shown_rho(plan.loss)
        tight, simple = map(shown_epsilon, (self.epsilons["tight"], self.epsilons["simple"]))
        by_rho = f", epsilon {tight} at delta {shown_delta(plan.delta)} (simple bound {simple})"
        exact = ""
        if isinstance(self.exact, float):
            at = shown_delta(self.delta or plan.delta)
            exact = f", exactly {shown_bound(self.exact)} at delta {at}"
        return (
            f"{plan.universe}: {plan.mechanism.replace('_', ' ')}, {plan.symbol} {loss}"
            f"{'' if plan.is_pure else by_rho}{exact}; rho {shown_rho(plan.bounded_rho)} of "
            "bounded zCDP in the ledger"
        )

    def as_json(self) -> dict[str, Any]:
        """The object of `spineflow budget --json`; fractions as strings."""
        guarantee = self.plan.guarantee
        native = self.neighbors if guarantee is None else guarantee.neighbors
        of_queries = self.of_queries or [{} for _ in self.plan.measured]
        return {
            "universe": self.plan.universe,
            "mechanism": self.plan.mechanism,
            "neighbors": self.neighbors,
            "native": {self.plan.symbol: self.plan.stated_loss, "neighbors": native},
            "rho": self.plan.bounded_rho,
            "delta": None if self.delta is None else str(self.delta),
            "epsilon": {"exact": self.exact, **self.epsilons},
            "attributes": dict(self.attributes),
            "block_within": dict(self.block_within),
            **self.further,
            "queries": [
                {**_query(self.plan, measure), **own}
                for measure, own in zip(self.plan.measured, of_queries, strict=True)
            ],
        }


def as_json(costs: Mapping[str, Any]) -> dict[str, Any]:
    """What `spineflow budget --json` prints of costs by universe, or of several runs by name."""
    return {
        name: cost.as_json() if isinstance(cost, Cost) else as_json(cost)
        for name, cost in costs.items()
    }


def margin_of(measure: Measure) -> int | None:
    """The smallest m such that noise lies within -m and m with a probability of 95 % at least.

    0 without noise; None where the noise is too wide to tell.
    """
    if measure.noise is None:
        return 0
    distribution = distribution_of(measure.noise)
    return None if is_too_wide(distribution) else margin(distribution, COVERAGE)


def shown_margin(measure: Measure) -> str:
    """`margin_of` a measure, for people."""
    found = margin_of(measure)
    return NONE if found is None else f"{found:,}"


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
    """What every measure costs, and how wide its noise is."""
    rows = [
        {
            "level": own.level,
            "query": own.query,
            "areas": own.areas,
            f"share of {plan.symbol}": str(own.share),
            "moved by a person": own.moved,
            "noise s.d.": own.deviation,
            "margin, 95 %": margin_of(own),
        }
        for own in plan.measured
    ]
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return Table.of([{name: row[name] for name in columns} for row in rows], "noise s.d.")


def noise_section(plan: Plan, *words: str) -> Section:
    """The noise of every measure of a plan, after words of the product's own."""
    about = (
        "Every answer has noise of its own: with discrete Gaussian noise a measure that one person "
        "moves by at most m, as squared L2 norm, costs m / (2 s^2) at a variance of s^2; with "
        "discrete Laplace noise it costs m / scale, m being the L1 norm."
    )
    tables = [noise_table(own) for own in plan.universes if own.measured]
    return Section("Noise", (*words, about, *tables))


def costs_in_words(costs: Mapping[str, Cost]) -> Iterator[Block]:
    """The costs in a line and a table for each universe."""
    for cost in costs.values():
        yield cost.in_words
        if cost.plan.measured:
            yield noise_table(cost.plan)
