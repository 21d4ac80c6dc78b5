"""The supplemental-dhc flow: people joined with their households, averages and relationships."""

from __future__ import annotations

from ..tasks.supplemental_dhc.product import SUPPLEMENTAL
from .entry import settings_flow, stages_flow
from .form import SupplementalDhcForm

supplemental_dhc = settings_flow(
    __name__,
    SUPPLEMENTAL,
    SupplementalDhcForm(),
    (
        "Releases average sizes of households and families, and people by the household that they "
        "live in, with intervals. Every draw of noise is charged to the dataset's ledger first; "
        "the release appears once every check has passed."
    ),
)
supplemental_dhc_stages = stages_flow(__name__, SUPPLEMENTAL)
