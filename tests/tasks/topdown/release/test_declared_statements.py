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
    levels_in_words,
)
from spineflow.tasks.topdown.workload.statement import exact_of

from tests.flows.gallery import DECLARATIONS


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


def test_people_who_agree_with_dwellings_are_sentences(tmp_path: Path) -> None:
    (text,) = (one for one in DECLARATIONS if "universes.homes" in one)
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    found = {fact.subject: fact.fact for _, fact in declared_statements(settings)}
    ending = (
        "; this is made so after the noise, from what is released alone, and costs nothing further"
    )
    assert found["people: a householder for every home with somebody in it"] == (
        "in every geounit, people with lives as householder are by sex as many as released homes "
        f"with householder woman or man{ending}"
    )
    assert found["people: everybody fits in"] == (
        "in every geounit, people with home at home are as many as released homes have room for by "
        "residents: 0 for each of nobody, 1 for each of 1, 2 for each of 2, 3 for each of 3, 4 to "
        f"12 for each of 4 or more{ending}"
    )


def test_positions_are_told_by_their_labels(country: TopdownSettings) -> None:
    assert levels_in_words(country, "persons", {"sex": (0, 1)}) == "sex female or male"
    assert levels_in_words(country, "persons", {"adult": (1,)}) == "adult adult"


def test_zeros_of_the_redistricting_universes_are_told_alike(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "c"\n[[workload.persons.structural_zeros]]\nname = "nursing"\n'
        "where = { hhgq = [3], votingage = [0] }\n"
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    (zero,) = [item for item in exact_of(settings) if item.subject == "persons: nursing"]
    assert zero.fact.startswith("there are no persons with hhgq ")
    assert "[" not in zero.fact and "3" not in zero.fact
