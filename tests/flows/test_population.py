"""One population of three products of a small generated county, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import HOUSEHOLDS
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import rehouse


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_persons_and_households_become_one_population(tmp_path: Path) -> None:
    generate_county(tmp_path / "raw", persons=500, seed=3, state="35")
    rehouse(tmp_path / "raw", tmp_path / "input", seed=4)
    text = HOUSEHOLDS.read_text(encoding="utf-8")
    file, run = tmp_path / "settings.toml", tmp_path / "run"
    file.write_text(text.replace('ledger = "ledger.db"', "seed = 5"), encoding="utf-8")
    assert main(["run", "products", str(file), "--run-dir", str(run)]) == 0
    persons = pd.read_parquet(run / "release" / "population_persons.parquet")
    units = pd.read_parquet(run / "release" / "population_units.parquet")
    occupied = units[units["occupied"].eq(True)]
    members = persons.groupby(["geocode", "unit"]).size()
    assert members.to_dict() == occupied.set_index(["geocode", "unit"])["size"].to_dict()
    heads = persons[persons["relationship"] == "householder"]
    assert sorted(heads["unit"]) == sorted(occupied["unit"])
    blocks = json.loads((run / "release" / "population.json").read_text())["blocks"]
    assert sum(blocks.values()) == occupied["geocode"].nunique()
    checks = json.loads((run / "validation" / "checks.json").read_text())
    assert checks["passed"] and len(checks["checks"]) == 4
    certificate = (run / "release" / "certificate.md").read_text(encoding="utf-8")
    assert "population_persons.parquet" in certificate
    manifest = json.loads((run / "manifest.json").read_text())
    assert "population" in manifest["stages"]
