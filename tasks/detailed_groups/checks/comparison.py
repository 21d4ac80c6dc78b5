"""What a comparison of detailed-groups runs shows of each."""

from __future__ import annotations

import pandas as pd

from ...runs.directory import RunDirectory
from ..ingest.household_ingest import run_parameters as household_parameters
from ..ingest.ingest import run_parameters
from ..postprocess.run import stages_of
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings

KEYS = ("region_type", "level", "table")
FIGURES = {
    "groups": "measured groups",
    "shown": "groups that are shown",
    "mean_absolute_error": "mean absolute error of shown totals",
    "mean_error": "mean error of shown totals",
    "mean_absolute_cell_error": "mean absolute error of shown cells",
    "somebody_suppressed": "groups of somebody that are not shown",
    "nobody_shown": "groups of nobody that are shown",
}

HOUSEHOLD_KEYS = ("tabulation", *KEYS)
HOUSEHOLD_FIGURES = {
    "groups": "measured groups",
    "mean_absolute_error": "mean absolute error of totals",
    "mean_error": "mean error of totals",
    "mean_absolute_cell_error": "mean absolute error of measured counts",
}

ALL_TABLES = "all"
"""The table of errors over all tables of a level."""


def facts_of_run(run: RunDirectory, settings: DetailedGroupsSettings) -> dict[str, str]:
    """What a run is, in words."""
    parameters = run_parameters(run, settings)
    return {
        "definition": parameters.definition,
        "total": f"{float(parameters.total):.6g}",
        "postprocessing": ", ".join(stages_of(settings)),
    }


def facts_of_households(run: RunDirectory, settings: DetailedHouseholdsSettings) -> dict[str, str]:
    """What a run of households is, in words."""
    parameters = household_parameters(run, settings)
    return {
        "definition": parameters.first.definition,
        "total": f"{float(parameters.total):.6g}",
    }


def with_all_tables(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors by level and table, and below them those of each level over all of its tables.

    Figures that are means weigh as many groups as are shown; the others add up.
    """
    means = [name for name in FIGURES if name.startswith("mean_")]
    counts = [name for name in FIGURES if name not in means]
    whole = []
    for (region_type, level), own in errors.groupby(["region_type", "level"], sort=False):
        row = {"region_type": region_type, "level": level, "table": ALL_TABLES}
        row |= own[counts].sum().to_dict()
        for name in means:
            known = own[own[name].notna() & (own["shown"] > 0)]
            weight = known["shown"].sum()
            row[name] = (known[name] * known["shown"]).sum() / weight if weight else None
        whole.append(row)
    return pd.concat([errors, pd.DataFrame(whole)], ignore_index=True)
