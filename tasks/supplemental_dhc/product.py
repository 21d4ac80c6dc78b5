"""The supplemental tables as a product: people joined with their households, PH1 to PH8."""

from __future__ import annotations

from ...validation.supplemental_dhc import check_privacy, run_checks
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words
from .ingest import check_households
from .measurement import plan_of
from .plan import UNIVERSE
from .release import FIGURES, KEYS, facts_of_run, report, write_accuracy
from .settings import SupplementalDhcSettings

SUPPLEMENTAL: Product = Product(
    SupplementalDhcSettings,
    plan_of,
    Rules(check_households),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        certificate=lambda run, settings: Facts("supplemental_dhc/templates/certificate.md.j2"),
        report=report,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        lambda run: [run.histogram(UNIVERSE)],
        figures=Figures(KEYS, FIGURES, facts_of_run),
    ),
)
