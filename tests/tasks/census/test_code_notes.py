"""Notes of `check` on codes that look misspelt, and digits that bring lost zeros back."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.topdown.ingest.ingest import check_input_of, check_with_notes
from spineflow.tasks.topdown.product import TOPDOWN

SETTINGS = """
[input]
areas = "areas.csv"
people = "people.csv"
[privacy]
dataset = "notes"
[geography]
spine = "conventional"
[census.geography]
table = "areas"
geolevels = ["country", "section"]
[census.files.people]
{digits}
[census.attributes]
sex = {{ column = "sex", levels = {{ male = ["1"], female = ["2"] }} }}
langs = {{ column = "langs", contains = ["fr"], among = ["de", "it"], separator = "," }}
[census.attributes.role]
rules = [
    {{ level = "head", where = {{ role = ["01"] }} }},
    {{ level = "partner", where = {{ role = ["02"], sex = ["1", "2"] }} }},
    {{ level = "other", where = {{ role = [{{ from = 90, to = 99 }}] }} }},
    {{ level = "other", where = {{}} }},
]
[census.universes.people]
table = "people"
where = {{ kind = {kinds} }}
attributes = ["sex", "role", "langs"]
area = "section"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
"""
HOME = 'through = { column = "home", table = "homes", key = "home" }\n'
ROWS = ["1,P,1,1,fr", "1,P,2,2,de", "1,R,1,3,", "2,P,2,3,it"]


def notes(
    folder: Path, digits: str = "", rows: list[str] = ROWS, kinds: str = '["P", "Q"]'
) -> list[str]:
    """The notes of a check of some rows."""
    (folder / "areas.csv").write_text("section,x\n1,a\n2,b\n")
    quoted = [row.rpartition(",")[0] + ',"' + row.rpartition(",")[2] + '"' for row in rows]
    (folder / "people.csv").write_text("\n".join(["section,kind,sex,role,langs", *quoted, ""]))
    (folder / "settings.toml").write_text(SETTINGS.format(digits=digits, kinds=kinds))
    settings = TOPDOWN.load(folder / "settings.toml")
    assert check_input_of(settings).notes == (), "notes are for check alone"
    check = check_with_notes(settings)
    check.accepted()
    return list(check.notes)


def test_codes_that_no_record_has_are_named(tmp_path: Path) -> None:
    assert notes(tmp_path, rows=["1,P,1,3,fr", "1,P,2,4,de", "2,P,2,03,it"]) == [
        "people: no record has 'Q' in kind (where of people).",
        "people: every record has the level 'other' of role.",
        "people: no record has '01', '02', '90-99' in role (role).",
        "people: every record falls to the rule of role without columns.",
    ]


def test_codes_of_a_condition_that_have_lost_zeros_are_told_from_others(tmp_path: Path) -> None:
    rows = [row.replace("P", "1").replace("R", "2") for row in ROWS]
    (note, *_) = notes(tmp_path, "digits = { role = 2 }", rows, kinds='["01", "1"]')
    assert note == (
        "people: no record has '01' in kind (where of people); if kind has lost leading zeros, "
        "declare its digits under census.files."
    )


def test_digits_bring_lost_zeros_back(tmp_path: Path) -> None:
    found = notes(tmp_path, "digits = { role = 2 }")
    assert found == [
        "people: no record has 'Q' in kind (where of people).",
        "people: no record has '90-99' in role (role).",
    ]


def check_of_born(folder: Path, *born: str) -> InputCheck[object]:
    """The check of people by their dates of birth."""
    (folder / "areas.csv").write_text("section,x\n1,a\n2,b\n")
    (folder / "people.csv").write_text("\n".join(["section,born", *(f"1,{b}" for b in born), ""]))
    text = SETTINGS.format(digits="", kinds='["P", "Q"]').replace('"sex", "role", "langs"', '"age"')
    text = text.replace('where = { kind = ["P", "Q"] }\n', "")
    age = 'age = { column = "born", age_at = "2021-03-31", bins = [0, 15], largest = 99 }\n'
    (folder / "settings.toml").write_text(text.replace("sex = {", f"{age}sex = {{", 1))
    return check_with_notes(TOPDOWN.load(folder / "settings.toml"))


def test_ages_of_dates_are_compared_with_bins(tmp_path: Path) -> None:
    assert check_of_born(tmp_path, "2010-01-01", "1990-01-01").notes == ()
    assert check_of_born(tmp_path, "1990-01-01").notes == (
        "people: no record has '0-14' in born (age).",
    )


@pytest.mark.parametrize(
    "unread, outcomes",
    [
        ("areas", {"areas": False}),
        ("homes", {"areas": True, "homes": False}),
        ("people", {"areas": True, "homes": True, "people": False}),
    ],
)
def test_the_table_that_cannot_be_read_is_named(
    unread: str, outcomes: dict[str, bool], tmp_path: Path
) -> None:
    """Homes are read with the people that refer to them."""
    for name, text in (
        ("areas", "section,x\n1,a\n2,b\n"),
        ("homes", "home,section\n1,1\n2,2\n"),
        ("people", "home,sex\n1,1\n2,2\n"),
    ):
        text = "PK\x03\x04" if name == unread else text
        (tmp_path / f"{name}.csv").write_text(text)
    text = SETTINGS.format(digits="", kinds='["P", "Q"]').replace('"sex", "role", "langs"', '"sex"')
    text = text.replace('where = { kind = ["P", "Q"] }\n', HOME)
    text = text.replace("[input]", '[input]\nhomes = "homes.csv"')
    (tmp_path / "settings.toml").write_text(text)
    check = check_with_notes(TOPDOWN.load(tmp_path / "settings.toml"))
    assert {one.subject: one.passed for one in check.outcomes} == outcomes
    assert check.findings[0].file == f"{unread}.csv"
