"""A generated county, its places and districts, whose intervals are drawn again and again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import lay_out, measure, read_dataset, with_seed
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.areas import BlockAreas
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.settings import TopdownSettings

from benchmarks.coverage import ESTIMATE, NoiseReplicates

QUERIES = ("total", "hispanic * cenrace", "votingage", "hhgq")
N_DISTRICTS = 7


def county(
    folder: Path, *, persons: int, spine: str = "optimized"
) -> tuple[NoiseReplicates, dict[str, BlockAreas]]:
    """A measured county, and its places and districts as lists of blocks.

    Districts are stretches of the block sequence, as long as each other, whose ends fall inside
    tracts and block groups; each shares a third of its blocks with the next.
    """
    tables = generate_county(folder / "county", persons=persons, seed=5)
    (folder / "settings.toml").write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{tables.persons}"\n'
        f'units = "{tables.units}"\ngeography = "{tables.geography}"\nconfidential = false\n'
        f'[privacy]\ndataset = "coverage"\n[geography]\nspine = "{spine}"\n'
        '[run]\nuniverses = ["persons"]\n'
    )
    settings = load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)
    dataset = read_dataset(settings, folder / "dataset")
    layout = lay_out(dataset, settings, folder / "layout")
    settings = with_seed(settings, 0)
    measured = measure(layout, settings, folder / "measured")
    replicates = NoiseReplicates.of(measured, settings, "persons")
    blocks = replicates.levels.spine.block_geocode
    geography = read_geography(geography_file(measured)).set_index("block_geocode").loc[blocks]
    place = geography["PLACEFP"].to_numpy()
    names, number = np.unique(place, return_inverse=True)
    number = np.where(place == "99999", -1, number)
    rank = np.argsort(np.argsort(blocks)) * N_DISTRICTS / len(blocks)
    inside = [np.flatnonzero((rank >= k) & (rank < k + 4 / 3)) for k in range(N_DISTRICTS)]
    districts = np.repeat(np.arange(N_DISTRICTS), [len(part) for part in inside])
    return replicates, {
        "places": BlockAreas.of_pairs(len(names), np.arange(len(blocks)), number),
        "districts": BlockAreas.of_pairs(N_DISTRICTS, np.concatenate(inside), districts),
    }


def departures(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of a coverage table that are not what the intervals promise: those of estimates farther
    from their level than the band, where their errors are more than a few records, and those of
    whole numbers lower by more."""
    distance = table["covered"] - table["level"]
    is_exact = table["kind"] == ESTIMATE
    is_smooth = is_exact & (table["std_dev"] > SMOOTH)
    is_low = (distance < -table["band"]) & (~is_exact | is_smooth)
    return table[is_low | (is_smooth & (distance > table["band"]))]


SMOOTH = 1.0
"""Standard deviation, in records, below which an error rests on few noises, all whole numbers."""
