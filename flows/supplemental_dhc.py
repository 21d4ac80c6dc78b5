"""The supplemental-dhc flow: people joined with their households, averages and relationships."""

from __future__ import annotations

from ..tasks.supplemental_dhc.product import SUPPLEMENTAL
from .entry import flows_of

supplemental_dhc, supplemental_dhc_stages = flows_of(
    __name__,
    SUPPLEMENTAL,
    "Releases average sizes of households and families, and people by the household that they "
    "live in, with intervals. Every draw of noise is charged to the dataset's ledger first; "
    "the release appears once every check has passed.",
)
