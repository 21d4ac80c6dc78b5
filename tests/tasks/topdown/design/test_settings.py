"""Settings of a design that would do nothing, or mean nothing, are refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.design.settings import DesignSettings

from tests.tasks.topdown.design.county_settings import HEAD

TARGET = '[design.persons.targets]\ntracts = { query = "total", level = "tract" }\n'


def load(folder: Path, text: str, *overrides: str) -> DesignSettings:
    file = folder / "settings.toml"
    file.write_text(HEAD + text, encoding="utf-8")
    return load_settings(DesignSettings, file, presets=PRESETS, overrides=overrides)


def of_target(target: str, further: str = "") -> str:
    return f"[design.persons]\n{further}\n[design.persons.targets]\ntracts = {{ {target} }}\n"


def limited(limit: str) -> str:
    return f"{TARGET}[design.persons.limits]\nsome = {{ {limit} }}\n"


REFUSED = {
    "no universe of the run": (
        TARGET.replace("persons", "units"),
        "design.units is of no universe of run.universes",
    ),
    "a tolerance of all": (
        of_target('query = "total", level = "tract"', 'tolerance = "1"'),
        "design.persons.tolerance must be positive and below 1",
    ),
    "a tolerance of nothing": (
        of_target('query = "total", level = "tract"', 'tolerance = "0"'),
        "design.persons.tolerance must be positive and below 1",
    ),
    "no query to measure": (
        of_target('query = "total", level = "tract"', 'queries = ["weather"]'),
        "design.persons.queries",
    ),
    "no query of a target": (
        of_target('query = "weather", level = "tract"'),
        "design.persons.targets.tracts.query",
    ),
    "neither level nor areas": (of_target('query = "total"'), "needs either level or areas"),
    "level and areas": (
        of_target('query = "total", level = "tract", areas = "a.csv"'),
        "needs either level or areas",
    ),
    "a weight of nothing": (
        of_target('query = "total", level = "tract", weight = "0"'),
        "weight and margin must be positive",
    ),
    "a margin of nothing": (
        of_target('query = "total", level = "tract", margin = "0"'),
        "weight and margin must be positive",
    ),
    "a margin in a sum": (
        of_target('query = "total", level = "tract", margin = "5"', 'objective = "weighted_sum"'),
        "margin does nothing in a weighted sum",
    ),
    "a weight in a ratio": (
        of_target('query = "total", level = "tract", weight = "2"'),
        "weight does nothing in a ratio to margins",
    ),
    "no margin of the smallest rho": (
        of_target('query = "total", level = "tract"', 'objective = "smallest_rho"'),
        "margin is missing; the smallest rho is the one that meets it",
    ),
    "a limit of nothing": (
        limited('at_most = "1/2"'),
        "design.persons.limits.some needs geolevel, query, or both",
    ),
    "no geolevel": (
        limited('geolevel = "Tracts", at_most = "1/2"'),
        "names 'Tracts', which is no geolevel (did you mean 'Tract'?)",
    ),
    "all for one": (
        limited('geolevel = "Tract", at_least = "1"'),
        "leaves nothing for the rest, and every geolevel has a share",
    ),
    "turned round": (
        limited('geolevel = "Tract", at_least = "1/2", at_most = "1/3"'),
        "at_least must be below at_most, and both from 0 to 1",
    ),
    "the same": (
        limited('geolevel = "Tract", at_least = "1/2", at_most = "1/2"'),
        "at_least must be below at_most",
    ),
    "less than nothing": (
        limited('query = "total", at_least = "-1/2"'),
        "at_least must be below at_most",
    ),
    "more than all": (limited('query = "total", at_most = "3/2"'), "at_least must be below"),
    "nothing for a geolevel": (
        limited('geolevel = "Tract", at_most = "0"'),
        "leaves Tract nothing, and every geolevel of a spine has a share",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_nothing_or_cannot_be_is_refused(tmp_path: Path, case: str) -> None:
    text, words = REFUSED[case]
    with pytest.raises(InputRefused) as refused:
        load(tmp_path, f'[run]\nuniverses = ["persons"]\n{text}')
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        TARGET,
        of_target('query = "total", level = "tract", margin = "5"', 'objective = "smallest_rho"'),
        of_target('query = "total", areas = "a.csv", weight = "2"', 'objective = "weighted_sum"'),
        limited('query = "total", at_most = "0"'),
        limited('geolevel = "Tract", at_least = "1/3", at_most = "1/2"'),
    ],
)
def test_what_is_near_to_that_is_taken(tmp_path: Path, text: str) -> None:
    design = load(tmp_path, text).design["persons"]
    assert list(design.targets) == ["tracts"]


@pytest.mark.parametrize("override", ["run.estimator=block_by_block", "privacy.infinite=true"])
def test_what_splits_no_budget_is_not_designed(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputRefused, match="design splits a budget over geolevels and queries"):
        load(tmp_path, TARGET, override)
