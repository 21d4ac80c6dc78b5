"""Query strategies: how a geolevel's share of the budget is split among its queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from ...census.queries import marginal_query
from ...census.schema import Schema

STRATEGIES: Mapping[str, int] = {
    "uniform": 0,
    "size": 1,
    "size_squared": 2,
    "inverse_size_squared": -2,
}
"""By name, the power of a query's number of answers that its share is proportional to; the first,
third and fourth are those of section 8.1 of [TopDown2022]."""


def strategy_shares(schema: Schema, queries: Iterable[str], strategy: str) -> dict[str, Fraction]:
    """Shares of queries under a strategy, which add to exactly 1.

    >>> schema = Schema("s", ("sex",), (("f", "m"),))
    >>> [str(share) for share in strategy_shares(schema, ["total", "sex"], "size").values()]
    ['1/3', '2/3']
    """
    power = STRATEGIES[strategy]
    weights = {name: Fraction(marginal_query(schema, name).n_rows) ** power for name in queries}
    return rescaled(weights)


def rescaled(weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Positive weights as shares that add to exactly 1."""
    whole = sum(weights.values(), Fraction(0))
    return {name: weight / whole for name, weight in weights.items()}
