"""What is exact, in words that a reader without the settings understands."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import tomli_w
from spineflow.flows.demo import DEMOS
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.declared_statements import (
    declared_statements,
)


@pytest.fixture
def country(tmp_path: Path) -> TopdownSettings:
    """The generated country, with two linear relations."""
    tree = tomllib.loads((DEMOS / "country.toml").read_text(encoding="utf-8"))
    tree["census"]["universes"]["persons"]["relations"] = [
        {
            "name": "homes",
            "left": [{"where": {"adult": ["adult"]}}, {"where": {"marital": ["married"]}}],
            "sign": "<=",
            "right": [{"universe": "dwellings", "times": 9}],
        },
        {
            "name": "women",
            "left": [{"where": {"sex": ["female"]}}],
            "sign": ">=",
            "right": [{"where": {"age": ["80-110"]}}],
        },
    ]
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    overrides = ['run.universes=["dwellings", "persons"]']
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


def test_structural_zeros_and_relations_are_sentences(country: TopdownSettings) -> None:
    found = {fact.subject: fact.fact for _, fact in declared_statements(country)}
    assert found["persons: children_marry"] == (
        "there are no persons with age 0-5 or 6-14 and marital married or formerly married"
    )
    assert found["persons: homes"] == (
        "in every geounit, persons with adult adult and persons with marital married, taken "
        "together, are at most as many as 9 times the released dwellings"
    )
    assert found["persons: women"] == (
        "in every geounit, persons with sex female are at least as many as persons with age 80-110"
    )
