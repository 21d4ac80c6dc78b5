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
from spineflow.tasks.topdown.ingest.generate_households import rehouse

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
input = { parameters = "params", groups = "products.detailed-groups" }
[products.detailed-households.mechanism]
run_us = true
run_pr = false
states = ["44"]
[products.detailed-households.mechanism.budgets]
t3 = { budgets }
t4 = { budgets }
[products.detailed-households.mechanism.thresholds]
t3 = { t3 }
t4 = { t4 }
[products.supplemental-dhc]
preset = "supplemental_dhc_2020_us"
"""

BUDGETS = dict.fromkeys(("COUNTY", "TRACT", "PLACE"), ("0.006915", "0.142869"))
BUDGETS |= dict.fromkeys(("USA", "STATE"), ("0.006915", "1.9208"))
BUDGETS["AIANNH"] = ("0", "0.142869")
"""rho of T3 and of T4, of levels 1 and 2."""
ABOVE = {"USA": (471, 971, 6971), "STATE": (471, 971, 6971)}
"""Thresholds of level 2; elsewhere `BELOW`."""
BELOW, LEVEL_1 = (971, 4971, 19971), (4971, 19971, 149971)


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
        rehouse(sample(folder, county), folder / "input")
        shutil.copytree(PARAMETERS, folder / "params", dirs_exist_ok=True)
        codes = tuple(read_specification(str(folder / "params")).names)
        give_detailed_codes(folder / "input" / "persons.parquet", codes)
    text = SETTINGS.replace("{ budgets }", _inline(_budgets()))
    for name, number in (("t3", 3), ("t4", 1)):
        text = text.replace(f"{{ {name} }}", _inline(_thresholds(number)))
    (folder / "settings.toml").write_text(text, encoding="utf-8")


def _budgets() -> dict[str, str]:
    return {
        name: f'{{ 1 = "{first}", 2 = "{second}" }}' for name, (first, second) in BUDGETS.items()
    }


def _thresholds(number: int) -> dict[str, str]:
    """Of each region type, the first `number` of the thresholds of its levels."""
    found = {}
    for name in BUDGETS:
        second = list(ABOVE.get(name, BELOW)[:number])
        first = "" if name == "AIANNH" else f"1 = {list(LEVEL_1[:number])}, "
        found[name] = f"{{ {first}2 = {second} }}"
    return found


def _inline(entries: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{name} = {text}" for name, text in entries.items()) + " }"


if __name__ == "__main__":
    main()
