"""What a product offers so that its budget can be searched for.

A search knows nothing of the product but this. A flow names the product in `TuneSettings.SEARCHED`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from ..runs.settings import ProductSettings

Losses = Mapping[str, Fraction]
"""Loss of every geolevel, root first; rho, or epsilon under the discrete Laplace."""


class Figures(Protocol):
    """How accurate one replicate is."""

    @property
    def errors(self) -> pd.DataFrame:
        """universe, quantity, answer, level, size_class, then statistics of the errors."""

    @property
    def reported(self) -> pd.DataFrame:
        """quantity, level, then the statistics that the report of a search shows."""

    def named(self, name: str) -> float:
        """A figure that has a name of its own, such as `redistricting`.

        Raises InputRefused if the data have nothing that it could be computed from.
        """


class SearchedProduct(Protocol):
    """A product whose runs can be replicated; the `settings` of its methods are of its model.

    Its settings have a field `input`, and `privacy` and `run` as every product's do. An instance
    goes to the workers as what its class is, so it is made at the top of a module.
    """

    @property
    def settings(self) -> type[ProductSettings]:
        """Model of the product's settings."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of a search that have a meaning for the product."""

    def universes(self, settings: Any) -> tuple[str, ...]:
        """The universes that a run of these settings measures."""

    def attributes(self, settings: Any, universe: str) -> tuple[str, ...]:
        """What is counted in a universe; variants of one search must share it."""

    def losses(self, settings: Any, universe: str) -> Losses:
        """Losses of a universe's geolevels as the settings have them."""

    def with_losses(self, settings: Any, universe: str, losses: Losses) -> Any:
        """Settings that spend these losses on a universe's geolevels."""

    def guaranteeing(self, settings: Any, changed: Any, universe: str) -> Any:
        """Settings whose split has been changed, with the total that keeps the guarantee of the
        first; as they are where settings promise nothing but their total."""

    def largest_total(self, settings: Any, universe: str) -> Fraction | None:
        """The largest total at which the settings' split keeps their guarantee; None where they
        promise nothing but their total."""

    def queries(self, settings: Any, universe: str) -> tuple[str, ...]:
        """The measured queries of a universe."""

    def with_weights(self, settings: Any, universe: str, weights: Mapping[str, Fraction]) -> Any:
        """Settings with the shares of queries multiplied, and scaled to 1 again."""

    def variations(
        self,
        settings: Any,
        universe: str,
        *,
        estimators: Sequence[str],
        bypass: Sequence[bool],
        strategies: Sequence[str],
    ) -> Mapping[str, Any]:
        """Settings under each estimator, bypass and query strategy that a search names, by what is
        added to the variant's name; raises ValueError for names that there are not."""

    def measuring_only(self, settings: Any, universe: str) -> Any:
        """Settings of a run that measures one universe alone."""

    def epsilon(self, settings: Any, universe: str) -> float | str:
        """What a universe costs, as epsilon at the settings' delta; words where it has no bound."""

    def read_input(self, settings: Any, folder: Path) -> None:
        """Read and check the input tables, which all trials share, unless the folder has them.

        What an interrupted attempt left is removed.
        """

    def lay_out(self, dataset: Path, settings: Any, folder: Path) -> None:
        """Make in a new folder what a trial's replicates share, from the input that was read."""

    def replicate(self, layout: Path, settings: Any, seed: int, folder: Path) -> Figures:
        """Measure, estimate and judge one replicate, in an empty folder that is then removed."""
