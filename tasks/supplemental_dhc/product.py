"""The supplemental tables as a product: people joined with their households, PH1 to PH8."""

from __future__ import annotations

from pyarrow import parquet

from ...validation.supplemental_dhc import check_privacy, run_checks
from ..products.budget import Cost
from ..products.certificate import Facts
from ..products.comparison import read_errors
from ..products.product import Accuracy, Checks, Figures, Product, Rules, Words
from ..runs.directory import RunDirectory
from .checks.accuracy import facts_of_run, write_accuracy
from .ingest.ingest import check_households, read_areas, read_plan
from .measurement import plan_of
from .plan import UNIVERSE
from .release.report import FIGURES, KEYS, NEIGHBORS, SUPPLEMENTAL_DHC, report
from .settings import SupplementalDhcSettings


def summary(run: RunDirectory, settings: SupplementalDhcSettings) -> tuple[str, ...]:
    """Content of the release, and its cost."""
    rows = parquet.read_metadata(run.release / f"{SUPPLEMENTAL_DHC}.parquet").num_rows
    numbers = read_areas(run).n_regions.items()
    regions = ", ".join(f"{number:,} {level}" for level, number in numbers)
    cost = Cost(read_plan(run)).in_words
    return (f"{rows:,} rows of PH1 to PH8; {regions}", f"{cost}, {NEIGHBORS}")


def facts(run: RunDirectory, settings: SupplementalDhcSettings) -> Facts:
    """Facts of the certificate."""
    template = "supplemental_dhc/templates/certificate.md.j2"
    return Facts(template, {"taus": settings.taus}, plan_of(settings, run).curves())


SUPPLEMENTAL: Product = Product(
    SupplementalDhcSettings,
    plan_of,
    Rules(check_households),
    Checks(lambda run, settings: run_checks(run.root, run.unchecked_release), check_privacy),
    Words(
        certificate=facts,
        report=report,
        summary=summary,
    ),
    Accuracy(
        read_errors,
        write_accuracy,
        lambda run: [run.histogram(UNIVERSE)],
        figures=Figures(KEYS, FIGURES, facts_of_run),
    ),
)
