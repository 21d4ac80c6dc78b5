"""Steps that charge the ledger and draw the noise of a group-sizes run."""

from __future__ import annotations

from ...ledger.charging import is_settled
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..ingest.files import read_plan
from ..paths import measurement_file
from ..settings import GroupSizesSettings
from .charge import charge_run, measurement_files
from .measure import measure_level


@step("charge group sizes", GroupSizesSettings, run_name="charge ledger", retried=False)
def charge_ledger(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Enter the run in the ledger before anything is drawn."""
    if is_settled(run, settings, measurement_files(run, read_plan(run))):
        return found("")
    charge_run(run, settings)
    return made("")


@step("measure groups", GroupSizesSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: GroupSizesSettings, level: str) -> Made:
    """Publish a level's noisy vector; what is published is never drawn again."""
    path = measurement_file(run, level)
    if path.exists():
        return found(path)
    measure_level(run, settings, level)
    return made(path)
