"""The evidence flow: protection methods and attacks side by side, on data that may be disclosed.

    read the people -> tables of every method, strength and draw -> attacks on each -> figures, page

Finished parts are kept in the run directory, so that an interrupted comparison resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..tasks.evidence.attacks.rebuilding import NAME as RECONSTRUCTION
from ..tasks.evidence.ingest import population_of
from ..tasks.evidence.methods.publish import draws_of
from ..tasks.evidence.release import page, restore_figures, summary
from ..tasks.evidence.settings import DifferentialPrivacy, EvidenceSettings, ProtectedCensus
from ..tasks.evidence.steps import (
    attack,
    pieces_of,
    publish_tables,
    read_people,
    rebuild,
    write_page,
)
from ..tasks.products.product import Product, Words, rules_of
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.trials import CENSUS
from ..tasks.topdown.workload.sections import CensusTables
from .running import flow_of_product
from .stages import finish, stage


class CensusEvidenceSettings(EvidenceSettings):
    """All settings of a comparison on a census that topdown reads."""

    CENSUS: ClassVar[ProtectedCensus] = CENSUS
    WRITTEN_AS: ClassVar[Mapping[str, str]] = {"product_settings": TopdownSettings.PRODUCT}

    input: CensusTables
    product_settings: TopdownSettings

    @property
    def parts(self) -> dict[str, ProductSettings]:
        """The settings of every release under differential privacy, by method and strength."""
        return {
            f"{name}, {strength}": self.CENSUS.spending(
                self.product_settings,
                self.evidence.universe,
                method.rho[number] if method.rho else None,
                method.estimator,
            )
            for name, method in self.methods.items()
            if isinstance(method, DifferentialPrivacy)
            for number, strength in enumerate(method.strengths)
        }


def stages(run: RunDirectory, settings: CensusEvidenceSettings) -> None:
    """Submit the stages of a run; releases, pieces and attacks go side by side."""
    root = str(run.root)
    with stage("ingest"):
        read = read_people.submit(root)
    finish()
    draws = draws_of(settings)
    with stage("publish"):
        published = [publish_tables.submit(root, draw, wait_for=[read]) for draw in draws]
    names = settings.evidence.attacks
    has_pieces = RECONSTRUCTION in names
    n_pieces = pieces_of(population_of(run, settings), settings) if has_pieces else 0
    with stage("rebuild"):
        rebuilt = [
            [rebuild.submit(root, draw, piece, wait_for=[made]) for piece in range(n_pieces)]
            for draw, made in zip(draws, published, strict=True)
        ]
    with stage("attacks"):
        attacks = [
            attack.submit(root, draw, name, wait_for=pieces if name == RECONSTRUCTION else [made])
            for draw, made, pieces in zip(draws, published, rebuilt, strict=True)
            for name in names
        ]
    finish()  # The report has the seconds of all stages before it.
    with stage("report"):
        write_page.submit(root, wait_for=[*published, *attacks])


PRODUCT: Product = Product(
    CensusEvidenceSettings,
    rules=rules_of(lambda settings: settings.product_settings),
    words=Words(
        report=lambda run, settings, _plan, _errors: page(run, settings),
        restore=restore_figures,
        summary=summary,
    ),
)

evidence = flow_of_product(
    PRODUCT,
    stages,
    "Compares protection methods on one census that may be disclosed: costs, and resistance "
    "to attacks. It releases no data, but one page and its figures.",
)
