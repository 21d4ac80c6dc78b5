"""A declared census of a column that an earlier release read, under another dataset's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import rehouse

from tests.flows.in_process import stages_in_process
from tests.tasks.topdown.offices import budget

pytestmark = pytest.mark.slow

SUPPLEMENTAL = """\
preset = "supplemental_dhc_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
"""
LEVELS = ("nation", "tract", "block")
DECLARED = """\
[input]
blocks = "grfc.txt"
homes = "units.parquet"
[privacy]
dataset = "tenures"
ledger = "ledger.db"
[census.geography]
table = "blocks"
geolevels = ["nation", "tract", "block"]
columns = { tract = "TABTRACTCE", block = "OIDTABBLK" }
[census.attributes.tenure]
column = "TEN"
levels = { owned = ["1", "2"], rented = ["3", "4"] }
[census.universes.households]
table = "homes"
area = "OIDTB"
where = { RTYPE = ["2"], VACS = ["0"] }
attributes = ["tenure"]
[geography]
spine = "conventional"
[run]
universes = ["households"]
"""


def test_tenure_alone_is_refused_after_the_supplemental_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_county(tmp_path / "raw", persons=4000, seed=1)
    rehouse(tmp_path / "raw", tmp_path, seed=1)
    files = {"supplemental": SUPPLEMENTAL, "declared": DECLARED + budget("households", LEVELS)}
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)

    def run(product: str, name: str) -> int:
        file, folder = str(tmp_path / f"{name}.toml"), str(tmp_path / name)
        with stages_in_process(judged_twice=False):
            return main(["run", product, file, "--run-dir", folder])

    assert run("supplemental-dhc", "supplemental") == 0
    capsys.readouterr()
    assert run("topdown", "declared") == 3
    assert "ledger knows as dataset 'county'" in capsys.readouterr().err
