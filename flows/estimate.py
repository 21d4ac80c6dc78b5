"""The estimate flow: from noisy measurements that are published already to microdata and tables."""

from __future__ import annotations

from ..tasks.topdown.product import ESTIMATE
from .entry import flows_of

estimate, estimate_stages = flows_of(
    ESTIMATE,
    "Releases microdata and redistricting tables from published noisy measurements alone. It "
    "reads nothing confidential and spends nothing.",
)
