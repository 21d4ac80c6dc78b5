"""The step that writes the released tables of households."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import SupplementalDhcSettings
from .tables import SUPPLEMENTAL_DHC, write_tables


@step("tabulate households", SupplementalDhcSettings, run_name="tabulate")
def tabulate(run: RunDirectory, settings: SupplementalDhcSettings) -> Made:
    """Write the tables where the checks look for them."""
    name = f"{SUPPLEMENTAL_DHC}.parquet"
    for folder in (run.release, run.unchecked_release):
        # The text is named last.
        if (folder / name).with_suffix(".csv").exists():
            return found(folder / name)
    write_tables(run, is_private=settings.is_private)
    return made(run.unchecked_release / name)
