"""The check of an input names the table that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.product import TOPDOWN

SETTINGS = """
[input]
areas = "areas.csv"
homes = "homes.csv"
people = "people.csv"
[privacy]
dataset = "people"
[geography]
spine = "conventional"
[census.geography]
table = "areas"
geolevels = ["country", "section"]
[census.attributes]
sex = { column = "sex", levels = { male = ["1"], female = ["2"] } }
[census.universes.people]
table = "people"
through = { column = "home", table = "homes", key = "home" }
attributes = ["sex"]
area = "section"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
"""


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
    (tmp_path / "settings.toml").write_text(SETTINGS)
    check = check_input_of(TOPDOWN.load(tmp_path / "settings.toml"))
    assert {one.subject: one.passed for one in check.outcomes} == outcomes
    assert check.findings[0].file == f"{unread}.csv"
