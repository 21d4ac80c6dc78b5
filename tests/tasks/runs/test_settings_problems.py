"""What settings that are refused say: the key, what it must be, and no more than five."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.trips.settings import TripsSettings

PRESETS = Path(__file__).resolve().parents[3] / "flows" / "settings"
TRIPS = """\
[input]
trips = "trips.parquet"
origin = "o"
destination = "d"
areas = "areas.csv"
[privacy]
dataset = "d"
rho = "1"
"""
DECLARED = """\
[census.geography]
geolevels = [
  "country",
  "town",
]
[census.attributes.sex]
column = "sex"
levels = { f = ["1"], m = ["2", 3, { from = "4", to = 5 }] }
[census.universes.people]
table = "people"
attributes = ["sex"]
area = "town"
[[census.universes.people.bounds]]
per = "people"
at_least = true
[geography]
bypass_cutoff = "many"
"""


def refusal(folder: Path, model: type, text: str, *overrides: str) -> str:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputRefused) as refused:
        load_settings(model, file, presets=PRESETS, overrides=overrides)
    return str(refused.value)


def test_a_problem_has_its_key_and_what_it_must_be(tmp_path: Path) -> None:
    told = refusal(tmp_path, TripsSettings, TRIPS + "[run]\n\nworkers = true\n")
    assert told == "settings.toml: run.workers must be a valid integer."
    told = refusal(tmp_path, TripsSettings, TRIPS, "run.workers=1000000000")
    assert told == "settings.toml: run.workers must be less than or equal to 10000."


def test_several_problems_are_told_at_once_without_the_validators_words(tmp_path: Path) -> None:
    told = refusal(tmp_path, TopdownSettings, DECLARED)
    assert "census.attributes.sex.levels.m.1 must be a text in quotes or a table" in told
    assert "census.attributes.sex.levels.m.2.from must be a valid integer" in told
    assert "census.universes.people.bounds.0.at_least must be a valid integer" in told
    assert "geography.bypass_cutoff must be a valid integer" in told
    assert "a valid integer or 'none'" in told
    for internal in ("function-", "CensusDeclaration", "constrained", "CodeRange", "Input should"):
        assert internal not in told


@pytest.mark.parametrize("deep", ["[" * 20_000 + "]" * 20_000, "{a=" * 20_000 + "1" + "}" * 20_000])
def test_deep_settings_are_refused(tmp_path: Path, deep: str) -> None:
    assert "too deep" in refusal(tmp_path, TripsSettings, f"x = {deep}\n")


def test_pipes_and_dangling_links_are_named(tmp_path: Path) -> None:
    pipe, link = tmp_path / "trips.parquet", tmp_path / "areas.csv"
    os.mkfifo(pipe)
    told = refusal(tmp_path, TripsSettings, TRIPS)
    assert "trips.parquet is a pipe, a socket or a device" in told
    pipe.unlink()
    link.symlink_to("elsewhere.csv")
    told = refusal(tmp_path, TripsSettings, TRIPS)
    assert "areas.csv is a link to elsewhere.csv, which does not exist" in told
    link.unlink()


EVIDENCE = """\
[input]
persons = "p"
units = "u"
geography = "g"
confidential = false
[privacy]
dataset = "d"
[topdown]
preset = "block_tables_2010"
[methods.as_is]
kind = "nothing"
"""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("[methods.m]\nkind = 'rounding'\nbases = []", r"bases needs 1 or more entries"),
        (
            "[methods.m]\nkind = 'rounding'\nbases = [1]",
            r"bases\.0 must be greater than or equal to 2",
        ),
        (
            "[methods.m]\nkind = 'rounding'\nbases = ['x']",
            r"bases\.0 must be a valid integer",
        ),
        ("[methods.m]\nkind = 'rounding'\nhow = 'up'", "how must be 'nearest', 'random' or"),
        ("[methods.m]\nkind = 'roundin'", "methods.m"),
        ("[evidence]\ndraws = 0", "evidence.draws must be greater than or equal to 1"),
        ("[evidence]\nseconds = 0", "evidence.seconds must be (greater than|above) 0"),
        ("[evidence]\nsecnds = 1", "unknown setting 'evidence.secnds' .did you mean 'seconds'"),
    ],
)
def test_every_kind_of_problem_has_words_of_its_own(tmp_path: Path, lines: str, told: str) -> None:
    own = product("evidence").settings
    found = refusal(tmp_path, own, f"{EVIDENCE}{lines}\n")
    assert re.search(told, found), found
