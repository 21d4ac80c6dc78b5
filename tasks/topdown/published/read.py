"""Reading published measurements into a run: its geography, spines, invariants and measurements.

What stands in the run directory afterwards is what a topdown run has when it has measured, so that
everything that comes later is the same code on the same files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....geography.levels import Spine
from ....validation.census.input_rules import applicable_rules
from ...census.evidence import EvidenceTally
from ...census.invariants import read_geography, write_invariants, write_state_totals
from ...census.tables import load_geography
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.stamps import write_frame
from ...tables.findings import refusal, unreadable_refused
from ...tables.sources import input_files
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.build import store_spine
from ..spine.files import spine_of
from .geounits import read_spine_of
from .invariants import block_invariants_of, read_blocks, read_totals, refuse_inconsistent
from .layout import MeasurementFolder, open_folder
from .values import check_level


def folder_of(settings: TopdownSettings) -> MeasurementFolder:
    """The measurements that the settings name: of the nation, or of Puerto Rico alone.

    Which of them is told by the root of the budgets' geolevels.
    """
    roots = {next(iter(settings.budget[name].geolevels)) for name in settings.run.universes}
    path = settings.input.paths()["measurements"]
    folder = open_folder(path)
    wanted = "US" if "US" in roots else "PR"
    return folder if folder.product in (None, wanted) else open_folder(path, wanted)


def read_public_geography(settings: TopdownSettings) -> pd.DataFrame:
    """The geography frame, held to the rules on geography files; raises InputRefused."""
    files = input_files("geography", settings.input.paths()["geography"])
    evidence = EvidenceTally()
    with unreadable_refused():
        frame = load_geography(files, evidence).frame
    rules = applicable_rules(evidence.suites)
    if findings := evidence.findings(rules, {"geography": files}):
        raise refusal(findings, with_counts=True)
    return frame


def write_public_geography(run: RunDirectory, settings: TopdownSettings) -> int:
    """Write the geography of a run from the file that the settings name; returns its blocks."""
    frame = read_public_geography(settings)
    write_frame(geography_file(run), frame)
    return len(frame)


def write_measured_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Write the spine that a universe was measured on, and cut it; the shards come last."""
    blocks = pq.read_table(geography_file(run), columns=["block_geocode"])["block_geocode"]
    spine = read_spine_of(folder_of(settings), settings, universe, blocks.to_numpy())
    store_spine(run, settings, universe, spine)


def write_told_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the invariants that the constraints tell, having held all constraints to them.

    The state totals come last: where they are, all is.
    """
    geography = read_geography(geography_file(run))
    spines = {name: spine_of(run, name) for name in settings.run.universes}
    invariants, totals = _invariants(folder_of(settings), settings, geography, spines)
    write_invariants(invariants_file(run), invariants)
    write_state_totals(state_totals_file(run), totals)


def check_measurements(settings: TopdownSettings) -> None:
    """Check all that `estimate` reads, and write nothing; raises InputRefused."""
    folder = folder_of(settings)
    geography = read_public_geography(settings)
    blocks = geography["block_geocode"].to_numpy(dtype=object)
    universes = settings.run.universes
    spines = {name: read_spine_of(folder, settings, name, blocks) for name in universes}
    _invariants(folder, settings, geography, spines)
    for universe, spine in spines.items():
        for geolevel in spine.names:
            check_level(folder, settings, universe, spine, geolevel)


def _invariants(
    folder: MeasurementFolder,
    settings: TopdownSettings,
    geography: pd.DataFrame,
    spines: dict[str, Spine],
) -> tuple[pd.DataFrame, dict[str, int]]:
    """The invariants frame and the state totals, consistent with every constraint there is."""
    counts = {u: read_blocks(folder, settings, u, spine) for u, spine in spines.items()}
    invariants = block_invariants_of(
        geography, {name: (spine, counts[name]) for name, spine in spines.items()}
    )
    first = next(iter(spines.values()))
    states = np.unique([code[:2] for code in first.block_geocode])
    totals = read_totals(folder, settings, states)
    for name, spine in spines.items():
        refuse_inconsistent(folder, settings, name, spine, counts[name], totals)
    return invariants, totals


def refuse_missing_folder(settings: TopdownSettings) -> None:
    """Raise InputRefused where the measurements or the geography that settings name are not."""
    folder_of(settings)
    path = settings.input.paths()["geography"]
    if "://" not in path and not Path(path).exists():
        raise InputRefused(f"{path} does not exist; correct input.geography.")
