"""The TopDown flow: from census-like tables to privacy-protected microdata."""

from __future__ import annotations

from ..tasks.topdown.product import TOPDOWN
from .entry import CHARGED_FIRST, flows_of

topdown, topdown_stages = flows_of(
    TOPDOWN,
    "Releases microdata of persons and housing units, and redistricting tables, by the TopDown "
    f"Algorithm. {CHARGED_FIRST}",
)
