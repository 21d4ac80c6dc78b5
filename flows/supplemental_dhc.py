"""The supplemental-dhc flow: people joined with their households, averages and relationships."""

from __future__ import annotations

from ..tasks.supplemental_dhc.product import SUPPLEMENTAL
from .entry import CHARGED_FIRST, flows_of

supplemental_dhc, supplemental_dhc_stages = flows_of(
    SUPPLEMENTAL,
    "Releases average sizes of households and families, and people by the household that they "
    f"live in, with intervals. {CHARGED_FIRST}",
)
