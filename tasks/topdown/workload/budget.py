"""Budgets: how a universe's privacy-loss parameter is shared over geolevels and queries.

All parameters are exact fractions. A query q asked of geounit g at geolevel l gets noise of
variance sigma^2 = 1 / (rho * share(g) * share(q, l)) under zCDP (discrete Gaussian, bounded
neighbours), or a discrete Laplace of scale 2 / (epsilon * share(g) * share(q, l)) under pure DP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ...census.influence import Norms
from ...noise.distributions import DISCRETE_LAPLACE, Noise


@dataclass(frozen=True)
class Budget:
    """The privacy-loss budget of one universe.

    `total` is rho under the discrete Gaussian and epsilon under the discrete Laplace.
    `geolevel_shares` and each geolevel's `query_shares` sum to exactly 1; queries with share 0
    are not measured and are left out, and a geolevel with share 0 has no queries.
    """

    universe: str
    mechanism: str
    total: Fraction
    delta: Fraction | None
    geolevel_shares: Mapping[str, Fraction]
    query_shares: Mapping[str, Mapping[str, Fraction]]
    infinite: bool = False
    charge: Norms = Norms()
    """Norms of the largest change that is charged: one record's, or more where the declaration says
    that a person's change may change several, as for households derived from their members."""
    stated: Norms = Norms()
    """Norms of the largest change, whether all of it is charged or not."""
    level_names: Mapping[str, str] = field(default_factory=dict, compare=False)
    """By geolevel, names of the spine's geounits for readers where these are not the geolevel's."""

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee is pure epsilon-DP rather than zCDP."""
        return self.mechanism == DISCRETE_LAPLACE

    @property
    def queries(self) -> tuple[str, ...]:
        """The measured queries, over all geolevels."""
        shares = self.query_shares.values()
        return tuple(dict.fromkeys(name for asked in shares for name in asked))

    def noise(self, geounit_share: Fraction, query_share: Fraction) -> Noise:
        """The noise of each answer: its sigma^2, or scale under the discrete Laplace.

        Raises ZeroDivisionError for a share of zero: such a query is not measured.
        """
        loss = self.spent(geounit_share, query_share)
        return Noise(self.mechanism, 2 / loss if self.is_pure else 1 / loss)

    def noises(
        self, geounit_shares: Sequence[Fraction], code: np.ndarray, query_share: Fraction
    ) -> Iterator[tuple[np.ndarray, Noise, str]]:
        """For each share among geounits, `geounit_shares[code]` with (n,) codes: the geounits with
        it, the noise of their answers to a query, and the loss spent on it; nothing without noise.
        """
        for share_code in [] if self.infinite else np.unique(code):
            shares = geounit_shares[share_code], query_share
            yield np.flatnonzero(code == share_code), self.noise(*shares), str(self.spent(*shares))

    def spent(self, geounit_share: Fraction, query_share: Fraction) -> Fraction:
        """The part of `total` that one query on one geounit costs."""
        return self.total * geounit_share * query_share
