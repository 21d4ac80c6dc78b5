"""The persons whose releases benchmarks of topdown compare with the truth, chosen by options."""

from __future__ import annotations

import argparse
from pathlib import Path

from spineflow.tasks.topdown.ingest.generate import generate_county

REPOSITORY = Path(__file__).resolve().parents[1]
PRESETS = REPOSITORY / "flows" / "settings"
BRISTOL = REPOSITORY.parent / "shared" / "data" / "ri2010_bristol_fixed_width"
BRISTOL_FILES = ("CEF20_PER.txt.gz", "CEF20_UNIT.txt.gz", "GRFC.txt")
STATE = BRISTOL.with_name("ri2010")
STATE_FILES = ("persons.parquet", "units.parquet", "grfc.txt")
SETTINGS = """
preset = "{preset}"
[input]
persons = "{persons}"
units = "{units}"
geography = "{geography}"
confidential = false
[privacy]
dataset = "benchmark"
[run]
universes = ["persons"]
estimator = "{estimator}"
"""


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Options for other persons than those of Bristol county."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--generated", type=int, metavar="PERSONS")
    where.add_argument("--state", action="store_true")


def settings_text(
    asked: argparse.Namespace, folder: Path, *, estimator: str, preset: str = "pl94_2020_us"
) -> str:
    """Settings of a run of the persons that the options name; a generated county is in `folder`."""
    persons, units, geography = (BRISTOL / file for file in BRISTOL_FILES)
    if asked.state:
        persons, units, geography = (STATE / file for file in STATE_FILES)
    if asked.generated:
        made = generate_county(folder / "county", persons=asked.generated, seed=1)
        persons, units, geography = made.persons, made.units, made.geography
    return SETTINGS.format(
        preset=preset, persons=persons, units=units, geography=geography, estimator=estimator
    )
