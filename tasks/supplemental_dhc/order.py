"""The order of the steps of a run of the supplemental tables.

    ingest -> charge -> measure -> estimate, level by level -> tabulate -> checks -> release
           -> report

All data travel through the run directory; what the tasks hand to each other are names and digests.
"""

from __future__ import annotations

from ..products.order import Order, call, one_by_one
from ..products.release.steps import ENDING
from ..products.steps import charge_ledger
from ..runs.directory import RunDirectory
from .estimation.steps import estimate
from .ingest.files import read_plan
from .ingest.steps import ingest
from .measurement.steps import measure
from .release.steps import tabulate
from .settings import SupplementalDhcSettings


def order(run: RunDirectory, _settings: SupplementalDhcSettings) -> Order:
    """The steps of a run; the levels are measured and estimated side by side."""
    ingested = call(ingest)
    yield {"ingest": [ingested]}
    charged = call(charge_ledger, after=[ingested])
    yield {"ledger": [charged]}
    levels = list(read_plan(run).levels)
    measured = [call(measure, level, after=[charged]) for level in levels]
    yield {"measure": measured}
    estimated = [
        call(estimate, level, after=[own]) for level, own in zip(levels, measured, strict=True)
    ]
    yield {"estimate": estimated}
    yield from one_by_one({"tables": tabulate, **ENDING}, after=estimated)
