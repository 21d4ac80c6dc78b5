"""What a product offers so that other protection methods can be set beside it.

A comparison knows nothing of the product but this. A flow names it in `EvidenceSettings.CENSUS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ...census.declarations import TableDeclaration
from ...census.partitions import People
from ...census.schema import Schema
from ...runs.settings import ProductSettings


class ProtectedCensus(Protocol):
    """A census whose people can be listed, and released under differential privacy.

    `settings` are of the product's model. An instance goes to the workers as what its class is, so
    it is made at the top of a module.
    """

    @property
    def settings(self) -> type[ProductSettings]:
        """Model of the product's settings."""

    def schema(self, settings: Any, universe: str) -> Schema:
        """The schema of a universe; raises KeyError for a universe that there is not."""

    def tables(self, settings: Any) -> Sequence[TableDeclaration]:
        """The tables that the census declares."""

    def levels(self, settings: Any) -> Sequence[str]:
        """The levels whose entities are known: geolevels, and columns that tables are by."""

    def read(self, settings: Any, universe: str, folder: Path) -> People:
        """Read and check the input, keep it in a folder for `release`, and list the people."""

    def entities(self, settings: Any, folder: Path, level: str) -> tuple[np.ndarray, Sequence[str]]:
        """Each area's entity of one of the `levels`, -1 for none, and the entities' codes."""

    def spending(self, settings: Any, universe: str, rho: Fraction | None, estimator: Any) -> Any:
        """Settings of a run of one universe that spends rho, by default its own."""

    def keep(
        self, settings: Any, universe: str, people: People, dataset: Path, folder: Path
    ) -> None:
        """Keep in a new folder, for `release`, what another has, with other people of a universe in
        the same areas, as many in each.
        """

    def release(
        self, settings: Any, universe: str, dataset: Path, seed: int, folder: Path
    ) -> sparse.csr_array:
        """Released counts `(n_areas, n_cells)` of a run under a seed, in an empty folder."""
