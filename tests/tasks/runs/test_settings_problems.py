"""What settings that are refused say: the key, its line, what it must be, and no more than five."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from spineflow.tasks.products.registry import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.runs.settings_problems import line_of
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


def test_a_problem_has_its_key_its_line_and_what_it_must_be(tmp_path: Path) -> None:
    told = refusal(tmp_path, TripsSettings, TRIPS + "[run]\n\nworkers = true\n")
    assert told == (
        "settings.toml: line 11: run.workers must be a whole number, without quotes and without a "
        "decimal point."
    )
    told = refusal(tmp_path, TripsSettings, TRIPS, "run.workers=1000000000")
    assert told == "settings.toml: --set run.workers: run.workers must be 10000 or less."


def test_several_problems_are_told_at_once_without_the_validators_words(tmp_path: Path) -> None:
    told = refusal(tmp_path, TopdownSettings, DECLARED)
    assert "line 8: census.attributes.sex.levels.m.1 must be a text in quotes or a table" in told
    assert "line 8: census.attributes.sex.levels.m.2.from must be a whole number" in told
    assert "line 15: census.universes.people.bounds.0.at_least must be a whole number" in told
    assert "line 17: geography.bypass_cutoff must be a whole number" in told
    assert "decimal point or 'none'" in told
    for internal in ("function-", "CensusDeclaration", "constrained", "CodeRange", "Input should"):
        assert internal not in told


def test_five_problems_are_told_and_the_others_counted(tmp_path: Path) -> None:
    wrong = "[run]\n" + "".join(f"wrong_{number} = 1\n" for number in range(8))
    told = refusal(tmp_path, TripsSettings, TRIPS + wrong)
    assert told.count("unknown setting") == 5
    assert "8 problems" in told and "and 3 more" in told


def test_a_misspelt_section_is_not_missing_too(tmp_path: Path) -> None:
    told = refusal(tmp_path, TripsSettings, TRIPS.replace("[privacy]", "[privvacy]"))
    assert told.startswith("settings.toml: line 6: unknown setting 'privvacy' (did you mean 'priv")
    assert "missing" not in told


def test_lines_are_those_where_statements_begin() -> None:
    assert line_of(DECLARED, ("census", "geography", "geolevels", 1)) == 2
    assert line_of(DECLARED, ("census", "universes", "people", "bounds", 0, "per")) == 14
    assert line_of(DECLARED, ("census", "universes", "people", "bounds", 1)) is None


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
        ("[methods.m]\nkind = 'rounding'\nbases = [1]", r"bases\.0 must be 2 or more"),
        (
            "[methods.m]\nkind = 'rounding'\nbases = ['x']",
            r"bases\.0 must be a whole number",
        ),
        ("[methods.m]\nkind = 'rounding'\nhow = 'up'", "how must be 'nearest', 'random' or"),
        ("[methods.m]\nkind = 'roundin'", "methods.m"),
        ("[evidence]\ndraws = 0", "evidence.draws must be 1 or more"),
        ("[evidence]\nminutes = 0", "evidence.minutes must be (more than|above) 0"),
        ("[evidence]\nminuts = 1", "unknown setting 'evidence.minuts' .did you mean 'minutes'"),
    ],
)
def test_every_kind_of_problem_has_words_of_its_own(tmp_path: Path, lines: str, told: str) -> None:
    own = product("evidence").settings
    found = refusal(tmp_path, own, f"{EVIDENCE}{lines}\n")
    assert re.search(told, found), found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('dataset = "d"', 'dataset = ""', "privacy.dataset must not be empty"),
        ('dataset = "d"', "", "the setting 'privacy.dataset' is missing"),
        ('dataset = "d"', 'dataset = "a b"', "privacy.dataset must be"),
    ],
)
def test_names_that_are_none_are_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert told in refusal(tmp_path, TripsSettings, TRIPS.replace(old, new))


@pytest.mark.parametrize(
    ("method", "line", "told"),
    [
        ('kind = "rounding"\nbases = [1]', 3, "methods.m.bases.0 must be 2 or more."),
        ('kind = "rounding"\nbases = []', 3, "methods.m.bases needs 1 or more entries."),
        (
            'kind = "rounding"\nbase = [3]',
            3,
            "unknown setting 'methods.m.base' (did you mean 'bases'?); known here: bases, how, "
            "kind.",
        ),
        (
            'kind = "round"',
            2,
            "methods.m.kind must be one of 'nothing', 'rounding', 'coarsening', 'suppression', "
            "'swapping', 'cell_keys', 'differential_privacy'.",
        ),
        (
            "bases = [3]",
            1,
            "the setting 'methods.m.kind' is missing; add it, or name a preset that has it.",
        ),
    ],
)
def test_what_is_wrong_in_a_table_of_a_kind_is_told_of_that_kind(
    method: str, line: int, told: str, tmp_path: Path
) -> None:
    """Once: neither the kind nor a list's number of right entries is told beside it."""
    demo = Path(__file__).resolve().parents[3] / "flows" / "demos" / "evidence.toml"
    file, text = tmp_path / "settings.toml", demo.read_text(encoding="utf-8")
    file.write_text(f"{text}[methods.m]\n{method}\n", encoding="utf-8")
    with pytest.raises(InputRefused) as refused:
        product("evidence").load(file)
    assert str(refused.value) == f"settings.toml: line {text.count(chr(10)) + line}: {told}"
