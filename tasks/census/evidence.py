"""Evidence: rows per distinct value of the columns that the rules on an input are checked on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from spineflow.validation.rules import Value


@dataclass
class EvidenceTally:
    """Rows per distinct value of every evidence column, by suite, summed over batches."""

    suites: dict[str, dict[str, dict[Value, int]]] = field(default_factory=dict)

    def add(self, suite: str, column: str, counts: Mapping[Value, int]) -> None:
        """Add the rows of some distinct values."""
        total = self.suites.setdefault(suite, {}).setdefault(column, {})
        for value, rows in counts.items():
            total[value] = total.get(value, 0) + rows

    def add_mask(self, suite: str, column: str, mask: np.ndarray) -> None:
        """Add the rows of a yes/no column."""
        true = int(np.count_nonzero(mask))
        counts = {True: true, False: len(mask) - true}
        self.add(suite, column, {value: rows for value, rows in counts.items() if rows})
