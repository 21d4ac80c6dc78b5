"""Runs of the real state in `../shared/data/ri2010`, and of counties of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from spineflow.flows.running import prepare, run_stages, run_stages_in_process
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT

COUNTIES = ("001", "009")
"""The smallest county, of fifty thousand people, and the one with the state's tribal area."""

NO_TRIBAL_LAND = "9999"
"""What AIANNHCE says of a block elsewhere."""


def write_counties(
    state: Path, folder: Path, counties: Sequence[str] = COUNTIES, *, every: int = 1, **columns: str
) -> None:
    """Write the tables of some counties; the geography gets other values in some columns.

    Of the tracts without tribal land only one in so many is written.
    """
    geography = pd.read_csv(state / "grfc.txt", sep="|", dtype=str)
    geography = geography[geography["TABBLKCOU"].isin(counties)]
    tract = geography["TABBLKCOU"] + geography["TABTRACTCE"]
    tribal = set(tract[geography["AIANNHCE"] != NO_TRIBAL_LAND])
    others = sorted(set(tract) - tribal)
    geography = geography[tract.isin(tribal.union(others[::every]))]
    units, persons = (pd.read_parquet(state / f"{name}.parquet") for name in ("units", "persons"))
    units = units[units["OIDTB"].astype(str).isin(geography["OIDTABBLK"])]
    persons = persons[persons["MAFID"].isin(units["MAFID"])]
    geography.assign(**columns).to_csv(folder / "grfc.txt", sep="|", index=False)
    units.to_parquet(folder / "units.parquet")
    persons.to_parquet(folder / "persons.parquet")


def run_state(
    folder: Path,
    state: Path,
    preset: str = "pl94_2020_us",
    geography: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    in_flow: bool = False,
) -> RunDirectory:
    """Run a state's tables, all stages; the geography is that beside them unless it is given.

    The stages run in this process, or in a flow run, which needs a Prefect server.
    """
    settings_file = folder / "settings.toml"
    settings_file.write_text(
        f'preset = "{preset}"\n[input]\npersons = "{state / "persons.parquet"}"\n'
        f'units = "{state / "units.parquet"}"\ngeography = "{geography or state / "grfc.txt"}"\n'
        '[privacy]\ndataset = "state"\n'
    )
    settings = PRODUCT.load(settings_file, overrides)
    run = prepare(settings, folder / "run")
    (run_stages if in_flow else run_stages_in_process)(PRODUCT, run, settings)
    return run
