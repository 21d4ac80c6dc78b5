"""The evidence flow: protection methods and attacks side by side, on data that may be disclosed.

    read the people -> tables of every method, strength and draw -> attacks on each -> figures, page

What is finished is kept in the run directory, so that an interrupted comparison goes on where it
was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tasks.evidence.product import document, order, rewritten, summary
from ..tasks.evidence.settings import DifferentialPrivacy
from ..tasks.pages.document import Block
from ..tasks.products.product import Product
from ..tasks.products.registry import costs_of, product
from ..tasks.runs.settings import ProductSettings
from .entry import flows_of
from .evidence_settings import CensusEvidenceSettings


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


def private_releases(settings: CensusEvidenceSettings) -> dict[str, ProductSettings]:
    """The settings of every release under differential privacy, by method and strength."""
    return {
        f"{name}, {strength}": settings.CENSUS.spending(
            settings.product_settings,
            settings.evidence.universe,
            method.rho[number] if method.rho else None,
            method.estimator,
        )
        for name, method in settings.methods.items()
        if isinstance(method, DifferentialPrivacy)
        for number, strength in enumerate(method.strengths)
    }


def _own(settings: CensusEvidenceSettings) -> Product:
    return product(settings.product_settings.PRODUCT)


PRODUCT: Product = Product(
    settings=CensusEvidenceSettings,
    costs=lambda settings: costs_of(private_releases(settings)),
    refuse=refuse,
    check_input=check_first,
    fits=fits,
    of_parts=private_releases,
    order=order,
    document=document,
    summary=summary,
    rewritten=rewritten,
)

evidence, evidence_stages = flows_of(
    __name__,
    PRODUCT,
    "Sets protection methods side by side on one census that may be disclosed: what each "
    "costs, and what it withstands. It releases no data, but one page and its figures.",
)
