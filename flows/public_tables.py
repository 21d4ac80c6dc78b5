"""Tables shown in the Prefect UI: public numbers only."""

from __future__ import annotations

from prefect.artifacts import create_table_artifact

from tasks.measurement.accounting import budget_report
from tasks.run_directory import RunDirectory
from tasks.settings.topdown import TopdownSettings
from tasks.spine.files import read_spine


def publish_tables(run: RunDirectory, settings: TopdownSettings) -> None:
    """The budget by geolevel and query, and the number of geounits, of every universe."""
    for universe in settings.run.universes:
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        create_table_artifact(
            report["queries"], key=f"budget-{universe}", description=f"rho {report['rho']}"
        )
        spine = read_spine(run.spine(universe))
        create_table_artifact(
            [
                {
                    "geolevel": level.name,
                    "geounits": len(level),
                    "bypassed": int(level.bypassed.sum()),
                }
                for level in spine.geolevels
            ],
            key=f"geounits-{universe}",
            description=f"{spine.kind} spine",
        )
