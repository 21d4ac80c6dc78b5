"""The evidence flow: protection methods and attacks side by side, on data that may be disclosed.

    read the people -> tables of every method, strength and draw -> attacks on each -> figures, page

What is finished is kept in the run directory, so that an interrupted comparison goes on where it
was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tasks.evidence.product import document, order, summary
from ..tasks.pages.document import Block
from ..tasks.products.product import Product
from ..tasks.products.registry import product
from .entry import settings_flow, stages_flow
from .evidence_settings import CensusEvidenceSettings
from .form import EvidenceForm


def refuse(settings: CensusEvidenceSettings) -> None:
    """The further checks of the product's settings."""
    _own(settings).refuse(settings.product_settings)


def check_first(settings: CensusEvidenceSettings) -> Any:
    """Check the input by the rules of the product."""
    check = _own(settings).check_input
    return None if check is None else check(settings.product_settings)


def fits(settings: CensusEvidenceSettings, accepted: Any) -> Iterable[Block]:
    """Hold the settings to the input, as the product does."""
    own = _own(settings).fits
    return () if own is None else own(settings.product_settings, accepted)


def _own(settings: CensusEvidenceSettings) -> Product:
    return product(settings.product_settings.PRODUCT)


PRODUCT: Product = Product(
    settings=CensusEvidenceSettings,
    costs=lambda settings: {},
    refuse=refuse,
    check_input=check_first,
    fits=fits,
    order=order,
    document=document,
    summary=summary,
)

evidence = settings_flow(
    __name__,
    PRODUCT,
    EvidenceForm(),
    (
        "Sets protection methods side by side on one census that may be disclosed: what each "
        "costs, and what it withstands. It releases no data, but one page and its figures."
    ),
)
evidence_stages = stages_flow(__name__, PRODUCT)
