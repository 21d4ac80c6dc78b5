"""The estimate flow: from noisy measurements that are published already to microdata and tables."""

from __future__ import annotations

from ..tasks.topdown.product import ESTIMATE
from .entry import settings_flow, stages_flow
from .form import EstimateForm

estimate = settings_flow(
    __name__,
    ESTIMATE,
    EstimateForm(),
    (
        "Releases microdata and redistricting tables from published noisy measurements alone. It "
        "reads nothing confidential and spends nothing."
    ),
)
estimate_stages = stages_flow(__name__, ESTIMATE)
