"""Every product of a census on the sample state, or one of its counties, on one ledger.

    .venv/bin/python -m benchmarks.whole_census FOLDER [--county 001]

draws households that fit together on the block counts of the tables, and detailed codes of race and
ethnicity of the 2020 specification. Then `products` runs redistricting with `run.coherent`, housing
units, persons, one population of both, detailed groups of persons and of householders, and people
joined with households, by the command, with the budgets of production. Prints a line a product:
wall and processor time, peak memory of all processes together. Needs Linux.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from spineflow.tasks.detailed_groups.ingest.generate import give_detailed_codes
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from .dhc_persons import sample
from .nation_run import run_and_tell

PARAMETERS = Path("../shared/data/safetab/spec_2020")
CAP = "200"
"""rho that may be spent, stated for a person who moves: far more than all products cost."""

SETTINGS = """
[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false
[privacy]
dataset = "whole-census"
ledger = "ledger.db"
[products.topdown]
preset = "pl94_2020_us"
run = { coherent = true }
[products.dhc-units]
preset = "dhc_units_2020_us"
input = { redistricting = "products.topdown" }
[products.dhc-persons]
preset = "dhc_persons_2020_us"
input = { redistricting = "products.topdown" }
[products.detailed-groups]
input = { parameters = "params" }
mechanism = { run_us = true, run_pr = false, states = ["44"] }
[products.detailed-households]
preset = "detailed_households_2020_us"
input = { parameters = "params", groups = "products.detailed-groups" }
mechanism = { states = ["44"] }
[products.supplemental-dhc]
preset = "supplemental_dhc_2020_us"
"""


def main() -> None:
    """Make the tables, run all products, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("--county")
    options = parser.parse_args()
    folder = options.folder
    write_input(folder, options.county)
    run_and_tell("products", folder, "--cap", CAP)


def write_input(folder: Path, county: str | None) -> None:
    """The tables, the specification of groups and the settings, as far as they are not there."""
    if not (folder / "input").exists():
        folder.mkdir(parents=True, exist_ok=True)
        synthesize_households(sample(folder, county), folder / "input")
        shutil.copytree(PARAMETERS, folder / "params", dirs_exist_ok=True)
        codes = tuple(read_specification(str(folder / "params")).names)
        give_detailed_codes(folder / "input" / "persons.parquet", codes)
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")


if __name__ == "__main__":
    main()
