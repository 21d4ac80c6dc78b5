"""Settings of the redistricting product that contradict themselves are refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
"""
OF_UNITS = "run.universes=['units']"


def load(folder: Path, *overrides: str) -> TopdownSettings:
    file = folder / "settings.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["run.universes=[]"], "run.universes must name at least one universe"),
        (["run.universes=['people']"], "names 'people', which the census does not declare"),
        (["run.universes=['units']", "run.coherent=true"], "run.coherent"),
        (
            [OF_UNITS, 'budget.units.geolevels={US="1/3", State="1/3", Block="1/2"}'],
            "budget.units.geolevels sums to",
        ),
        (
            [OF_UNITS, 'workload.units.passes.US={least_squares=[["total"]], rounder=[["total"]]}'],
            "spends on 'detailed', which no least-squares pass at US uses",
        ),
        (
            [
                "run.universes=['persons']",
                "workload.persons.passes.US={least_squares=[['all']], "
                "rounder=[['hispanic', 'cenrace', 'detailed']]}",
            ],
            "each rounder pass must be a chain in which every query refines the one before it",
        ),
        (["input.geometry=https://maps.example/areas"], "input.geometry must be a path"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(
    tmp_path: Path, overrides: list[str], words: str
) -> None:
    with pytest.raises(InputRefused) as refused:
        load(tmp_path, *overrides)
    assert words in str(refused.value)


def test_settings_that_fit_are_taken(tmp_path: Path) -> None:
    assert load(tmp_path).run.universes == ("persons", "units")
    units = load(tmp_path, OF_UNITS)
    assert units.run.universes == ("units",)
    assert set(units.budget_of("units").geolevel_shares) >= {"US", "Block"}
