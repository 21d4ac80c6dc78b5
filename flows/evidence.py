"""The evidence flow: protection methods and attacks side by side, on data that may be disclosed.

    read the people -> tables of every method, strength and draw -> attacks on each -> figures, page

What is finished is kept in the run directory, so that an interrupted comparison goes on where it
was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..tasks.evidence.product import rewritten, summary
from ..tasks.evidence.release.page import page
from ..tasks.evidence.settings import DifferentialPrivacy, EvidenceSettings
from ..tasks.evidence.workload.protected import ProtectedCensus
from ..tasks.products.order import Order
from ..tasks.products.product import Product
from ..tasks.products.registry import check_input_of, costs_of, fits_of, refuse_any
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.protected import CENSUS
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.workload.tables import CensusTables
from .entry import flows_of


class CensusEvidenceSettings(EvidenceSettings):
    """All settings of a comparison on a census that topdown reads."""

    CENSUS: ClassVar[ProtectedCensus] = CENSUS
    WRITTEN_AS: ClassVar[Mapping[str, str]] = {"product_settings": TopdownSettings.PRODUCT}

    input: CensusTables
    product_settings: TopdownSettings


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


def order(run: RunDirectory, settings: CensusEvidenceSettings) -> Order:
    """The order of the steps; see `tasks.evidence.order.order`."""
    from ..tasks.evidence import order as evidence  # 3.0 s, of which a budget needs nothing.

    return evidence.order(run, settings)


PRODUCT: Product = Product(
    settings=CensusEvidenceSettings,
    costs=lambda settings: costs_of(private_releases(settings)),
    refuse=lambda settings: refuse_any([settings.product_settings]),
    check_input=lambda settings: check_input_of(settings.product_settings),
    fits=lambda settings, accepted: fits_of(settings.product_settings, accepted),
    of_parts=private_releases,
    order=order,
    document=lambda run, settings, _plan, _errors: page(run, settings),
    summary=summary,
    rewritten=rewritten,
)

evidence, evidence_stages = flows_of(
    PRODUCT,
    "Sets protection methods side by side on one census that may be disclosed: what each "
    "costs, and what it withstands. It releases no data, but one page and its figures.",
)
