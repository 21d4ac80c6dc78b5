"""Settings of a design that would do nothing, or mean nothing, are refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.products.product import PRESETS
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


LEVEL = 'query = "total", level = "tract"'
REFUSED = [
    (TARGET.replace("persons", "units"), "design.units is of no universe of run.universes"),
    (of_target(LEVEL, 'tolerance = "1"'), "tolerance must be positive and below 1"),
    (of_target(LEVEL, 'tolerance = "0"'), "tolerance must be positive and below 1"),
    (of_target(LEVEL, 'queries = ["weather"]'), "design.persons.queries"),
    (of_target('query = "weather", level = "tract"'), "design.persons.targets.tracts.query"),
    (of_target('query = "total"'), "needs either level or areas"),
    (of_target(f'{LEVEL}, areas = "a.csv"'), "needs either level or areas"),
    (of_target(f'{LEVEL}, weight = "0"'), "must be above 0"),
    (of_target(f'{LEVEL}, margin = "0"'), "must be above 0"),
    (
        of_target(f'{LEVEL}, margin = "5"', 'objective = "weighted_sum"'),
        "margin does nothing in a weighted sum",
    ),
    (of_target(f'{LEVEL}, weight = "2"'), "weight does nothing but in a weighted sum"),
    (of_target(LEVEL, 'objective = "smallest_rho"'), "margin is missing; the smallest rho"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_does_nothing_or_cannot_be_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputRefused) as refused:
        load(tmp_path, f'[run]\nuniverses = ["persons"]\n{text}')
    assert words in str(refused.value)


@pytest.mark.parametrize("override", ["run.estimator=block_by_block", "privacy.infinite=true"])
def test_what_splits_no_budget_is_not_designed(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputRefused, match="design splits a budget over geolevels and queries"):
        load(tmp_path, TARGET, override)
