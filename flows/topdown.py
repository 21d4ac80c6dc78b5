"""The TopDown flow: from census-like tables to privacy-protected microdata."""

from __future__ import annotations

from ..tasks.topdown.product import TOPDOWN
from .entry import settings_flow, stages_flow
from .form import TopdownForm

topdown = settings_flow(
    __name__,
    TOPDOWN,
    TopdownForm(),
    (
        "Releases microdata of persons and housing units, and redistricting tables, "
        "by the TopDown Algorithm. Every draw of noise is charged to the dataset's "
        "ledger first; the release appears once every check has passed."
    ),
)
topdown_stages = stages_flow(__name__, TOPDOWN)
