"""The supplemental tables as a product: people joined with their households, PH1 to PH8."""

from __future__ import annotations

from pyarrow import parquet

from ...validation.supplemental_dhc.privacy_loss import check_privacy
from ...validation.supplemental_dhc.run_checks import run_checks
from ..products.comparison import read_errors
from ..products.product import Accuracy, Figures, Product
from ..runs.directory import RunDirectory
from .checks.accuracy import FIGURES, KEYS, facts_of_run, write_accuracy
from .ingest.files import read_plan
from .ingest.ingest import check_households, costs, public_plan
from .measurement.charge import plan_of_run
from .paths import UNIVERSE
from .release.certificate import facts_of
from .release.report import NEIGHBORS, loss_text, report
from .release.tables import SUPPLEMENTAL_DHC
from .settings import SupplementalDhcSettings
from .workload.costs import curves_of, needed_budget


def summary(run: RunDirectory, settings: SupplementalDhcSettings) -> tuple[str, ...]:
    """What is in the release, and what it cost."""
    plan = read_plan(run)
    rows = parquet.read_metadata(run.release / f"{SUPPLEMENTAL_DHC}.parquet").num_rows
    regions = ", ".join(f"{number:,} {level}" for level, number in plan.levels.items())
    return (f"{rows:,} rows of PH1 to PH8; {regions}", f"{loss_text(plan)}, {NEIGHBORS}")


SUPPLEMENTAL: Product = Product(
    settings=SupplementalDhcSettings,
    costs=costs,
    check_input=check_households,
    needed=lambda settings, target, margin: needed_budget(public_plan(settings), target, margin),
    curves=lambda settings: curves_of(public_plan(settings)),
    plan=plan_of_run,
    check_plan=check_privacy,
    checks=lambda run, settings: run_checks(run.root, run.unchecked_release),
    facts=lambda run, settings: facts_of(settings, read_plan(run)),
    accuracy=Accuracy(read_errors, write_accuracy, lambda run: [run.histogram(UNIVERSE)]),
    document=report,
    summary=summary,
    figures=Figures(KEYS, FIGURES, facts_of_run),
)
