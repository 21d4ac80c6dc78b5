"""The order of the steps of a group-sizes run.

    ingest -> charge -> measure, level by level -> estimate -> tabulate -> checks -> release
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
from .settings import GroupSizesSettings


def order(run: RunDirectory, _settings: GroupSizesSettings) -> Order:
    """The steps of a run; the levels are measured side by side."""
    ingested = call(ingest)
    yield {"ingest": [ingested]}
    charged = call(charge_ledger, after=[ingested])
    yield {"ledger": [charged]}
    levels = read_plan(run).measured_levels
    made = [call(measure, level.level, after=[charged]) for level in levels]
    yield {"measure": made}
    yield from one_by_one({"estimate": estimate, "tables": tabulate, **ENDING}, after=made)
