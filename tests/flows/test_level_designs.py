"""Designed settings of group sizes and of trips, run to a release and charged what they say."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

pytestmark = pytest.mark.slow

GROUPS = """
[design]
objective = "smallest_budget"
[design.targets.nation]
margin = 20
[design.targets.county]
margin = 60
"""
TRIPS = """
[design]
objective = "smallest_budget"
[design.targets.2]
margin = 15
[design.targets.6]
margin = 40
"""


@pytest.mark.parametrize("product", ["group-sizes", "trips"])
def test_designed_settings_run_to_a_release(in_process, tmp_path: Path, product: str) -> None:
    if product == "trips":
        generate_country(tmp_path, CountrySize(2, 4, 20, 100, 5_000))
    else:
        write_dataset(tmp_path, census_like(groups=20_000, counties=15, states=4, largest=60))
    file = tmp_path / "settings.toml"
    text = file.read_text().replace("confidential = false\n", "")
    if product == "group-sizes":
        text = text.replace('epsilon = "1"', 'rho = "1/2"')
    file.write_text(text + (TRIPS if product == "trips" else GROUPS))
    assert main(["design", product, str(file)]) == 0
    chosen, run = tmp_path / "settings-designed.toml", tmp_path / "run"
    assert main(["run", product, str(chosen), "--run-dir", str(run)]) == 0
    assert list((run / "release").glob("*.parquet"))
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]
    ((own),) = spent.values()
    (draw,) = own["products"][product]["draws"]
    rho = next(line for line in chosen.read_text().splitlines() if line.startswith("rho = "))
    assert Fraction(draw["parameter"]) == Fraction(rho.split('"')[1])
