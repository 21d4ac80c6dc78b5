"""What a product offers so that its budget can be searched for.

A search knows nothing of the product but this. A flow names the product in `TuneSettings.SEARCHED`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from ..runs.settings import ProductSettings
from .registry import product

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


class SearchedProduct(ABC):
    """A product whose runs can be replicated; the `settings` of its methods are of its model.

    By default a product has one universe, without queries to weigh; its settings promise nothing
    but their total; and every replicate is a whole run, which reads its input.

    Its settings have a field `input`, and `privacy` and `run` as every product's do. An instance
    goes to the workers as what its class is, so it is made at the top of a module.
    """

    settings: type[ProductSettings]
    """Model of the product's settings."""
    methods: tuple[str, ...]
    """The methods of a search that have a meaning for the product."""

    @abstractmethod
    def universes(self, settings: Any) -> tuple[str, ...]:
        """The universes that a run of these settings measures."""

    def attributes(self, settings: Any, universe: str) -> tuple[str, ...]:
        """What is counted in a universe; variants of one search must share it. None where variants
        may count other things, and are compared by what they are asked for."""
        return ()

    @abstractmethod
    def losses(self, settings: Any, universe: str) -> Losses:
        """Losses of a universe's geolevels as the settings have them."""

    @abstractmethod
    def with_losses(self, settings: Any, universe: str, losses: Losses) -> Any:
        """Settings that spend these losses on a universe's geolevels."""

    def guaranteeing(self, settings: Any, changed: Any, universe: str) -> Any:
        """Settings whose split has been changed, with the total that keeps the guarantee of the
        first; as they are where settings promise nothing but their total."""
        return changed

    def largest_total(self, settings: Any, universe: str) -> Fraction | None:
        """The largest total at which the settings' split keeps their guarantee; None where they
        promise nothing but their total."""
        return None

    def queries(self, settings: Any, universe: str) -> tuple[str, ...]:
        """The measured queries of a universe."""
        return ()

    def with_weights(self, settings: Any, universe: str, weights: Mapping[str, Fraction]) -> Any:
        """Settings with the shares of queries multiplied, and scaled to 1 again."""
        return settings

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
        if estimators or bypass or strategies:
            raise ValueError(
                "tries estimators, bypass or strategies, which belong to topdown; write a variant "
                "for each alternative"
            )
        return {"": settings}

    def measuring_only(self, settings: Any, universe: str) -> Any:
        """Settings of a run that measures one universe alone."""
        return settings

    def epsilon(self, settings: Any, universe: str) -> float | str:
        """What a universe costs, as epsilon at the settings' delta; words where it has no bound.
        By default the largest of what a run costs."""
        costs = product(settings.PRODUCT).costs(settings).values()
        return max(cost.epsilons["tight"] for cost in costs)

    def read_input(self, settings: Any, folder: Path) -> None:
        """Read and check the input tables, which all trials share, unless the folder has them.

        What an interrupted attempt left is removed.
        """
        folder.mkdir(parents=True, exist_ok=True)

    def lay_out(self, dataset: Path, settings: Any, folder: Path) -> None:
        """Make in a new folder what a trial's replicates share, from the input that was read."""
        folder.mkdir(parents=True)

    @abstractmethod
    def replicate(self, layout: Path, settings: Any, seed: int, folder: Path) -> Figures:
        """Measure, estimate and judge one replicate, in an empty folder that is then removed."""
