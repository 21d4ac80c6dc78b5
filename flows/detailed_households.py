"""The detailed-households flow: SafeTab-H's tables of households by group of the householder."""

from __future__ import annotations

from ..tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from .entry import settings_flow, stages_flow
from .form import DetailedHouseholdsForm

detailed_households = settings_flow(
    __name__,
    DETAILED_HOUSEHOLDS,
    DetailedHouseholdsForm(),
    (
        "Releases tables of households by type and tenure for detailed race and ethnicity "
        "groups of the householder, by SafeTab-H, as detailed as the totals of a finished run "
        "of detailed groups allow. Every draw of noise is charged to the dataset's ledger "
        "first; the release appears once every check has passed."
    ),
)
detailed_households_stages = stages_flow(__name__, DETAILED_HOUSEHOLDS)
